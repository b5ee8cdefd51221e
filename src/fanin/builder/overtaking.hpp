// Finds out who is overtaken: which sources of a readout unit, or readout units of the run (here
// each is an "end"), are more than a window behind another one. If one end alone is ahead, its
// numbers are not believed until others follow. But an end that is dead never follows. When it has
// been quiet for the deadline while another one was ahead, it is passed over: the numbers of the
// one ahead need no confirmation by it any more.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "fanin/base/clock.hpp"
#include "fanin/base/identity.hpp"
#include "fanin/base/state.hpp"

namespace fanin::builder {

// Knows no connection; times are those of a clock that stands still while its owner does.
class Overtaking {
public:
  struct End {
    EventNumber next = 0;  // events below are answered
    Duration moved_at{};   // when it gave something last, or could not because of us
    bool follows = false; // it may be overtaken: it has begun, and is neither silent nor at its end
    bool leads = false; // it may overtake: it has begun, and gave enough numbers in a row
  };
  struct Pair {
    std::size_t behind = 0;
    std::size_t ahead = 0;
  };

  // `report_after`: an end that is quiet for so long (or half the deadline, if that is less) is
  // reported.
  Overtaking(std::size_t ends, std::uint64_t window, Duration deadline, Duration report_after)
      : window_(window), deadline_(deadline), report_after_(report_after), entries_(ends) {}

  // Compares them all, in n log n steps. Returns those to report, each once while it is overtaken.
  // Valid until the next call.
  [[nodiscard]] std::span<const Pair> update(std::span<const End> ends, Duration now);
  // It gave something.
  void moved(std::size_t end) {
    if (entries_[end].state == State::passed_over) entries_[end].state = State::reported;
  }
  // It begins again, or nobody has a deadline now.
  void forget(std::size_t end) { entries_[end] = {}; }

  [[nodiscard]] bool passed_over(std::size_t end) const {
    return entries_[end].state == State::passed_over;
  }
  // Who was ahead of it when update() was called last; none: nobody.
  [[nodiscard]] std::optional<std::size_t> ahead_of(std::size_t end) const {
    if (entries_[end].state == State::level) return {};
    return entries_[end].ahead;
  }
  [[nodiscard]] bool any() const { return overtaken_ > 0; }

private:
  enum class State : std::uint8_t { level, overtaken, reported, passed_over };
  friend constexpr bool may_follow(State from, State to) {
    switch (to) {
    case State::level: return true;
    case State::overtaken: return from == State::level;
    case State::reported: return from == State::overtaken || from == State::passed_over;
    case State::passed_over: return from == State::reported || from == State::passed_over;
    }
    return false;
  }
  struct Entry {
    CheckedState<State> state = State::level;
    Duration since{}; // overtaken
    std::size_t ahead = 0;
  };
  struct Leader {
    EventNumber next = 0;
    Duration moved_at{}; // the latest of this one and of all further ahead
    std::size_t end = 0; // whose that is
  };
  [[nodiscard]] const Leader* leader_of(const End& end) const;
  void find_leaders(std::span<const End> ends);

  std::uint64_t window_;
  Duration deadline_;
  Duration report_after_;
  std::vector<Entry> entries_;
  std::vector<Leader> leaders_; // the furthest first; reused
  std::vector<Pair> reports_; // reused
  std::size_t overtaken_ = 0;
};

} // namespace fanin::builder
