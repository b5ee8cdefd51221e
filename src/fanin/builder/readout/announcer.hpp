// What a readout unit announces to the event manager: up to where all its sources have answered,
// how many bytes that is, and what is absent. Announcements are as few as the latency allows, and
// never cross the end of a batch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "fanin/base/state.hpp"
#include "fanin/builder/system.hpp"
#include "fanin/source/fragment_queue.hpp"
#include "fanin/wire/control.hpp"

namespace fanin::builder {

// Knows no connection.
class Announcer {
public:
  // Where messages go.
  class Out {
  public:
    // Whether a message with so many bytes of absent ranges has room now.
    [[nodiscard]] virtual bool roomy(std::size_t absent_bytes) = 0;
    // The most bytes of absent ranges that a message can carry.
    [[nodiscard]] virtual std::size_t room_max() const = 0;
    virtual void send(const wire::Announce& message, std::span<const wire::AbsentRange> absent) = 0;

  protected:
    ~Out() = default;
  };
  // What the sources have, and what is wanted of them.
  struct Turn {
    EventNumber end = 0; // all sources have answered for the numbers below
    EventNumber limit = 0; // nothing from here on is wanted yet
    bool final = false; // nothing will follow
    bool idle = false; // no source has more to read now
    bool held_up = false; // a source waits for room
    bool silent = false; // all sources were given up as silent
    bool few = false; // what they have may be left over from an earlier run
    Time now{};
  };

  // `system` must outlive it, and so must the queues of all sources of the readout unit.
  Announcer(const System& system, std::span<source::FragmentQueue* const> queues)
      : system_(system), queues_(queues) {}

  // Nothing was announced.
  void reset();
  // Joins the run at `first`: what is below is absent. `given_up`: it begins only because its
  // sources were given up. Until one of them sends something, it announces no event and begins
  // further and further on. `few`: as in Turn.
  void begin(EventNumber first, bool given_up, bool few, Out& out);
  // Announces what is worth a message now. Requires that it has begun, and has not ended.
  void announce(const Turn& turn, Out& out);

  [[nodiscard]] bool begun() const { return state_ != State::unnumbered; }
  [[nodiscard]] bool ended() const { return state_ == State::ended; } // it has said so
  // All numbers below are announced; 0 before it has begun.
  [[nodiscard]] EventNumber announced() const { return announced_; }
  // When that which waits will be announced; never: nothing waits.
  [[nodiscard]] Time due() const { return due_; }

private:
  enum class State : std::uint8_t { unnumbered, given_up, announcing, ended };
  friend constexpr bool may_follow(State from, State to) {
    const bool begins = from == State::unnumbered || from == State::given_up;
    switch (to) {
    case State::unnumbered: return true; // another run
    case State::given_up:
    case State::announcing: return begins;
    case State::ended: return from == State::announcing || from == State::given_up;
    }
    return false;
  }

  [[nodiscard]] bool begin_again(const Turn& turn, Out& out);
  void say_that_it_has_enough(const Turn& turn, Out& out);
  [[nodiscard]] bool worth_a_message(const Turn& turn, EventNumber& end);
  [[nodiscard]] bool announce_gap(const Turn& turn, EventNumber end, Out& out);
  [[nodiscard]] bool announce_range(const Turn& turn, EventRange range, Out& out);
  [[nodiscard]] std::uint64_t bytes_of(EventRange range) const;

  const System& system_;
  std::span<source::FragmentQueue* const> queues_;
  CheckedState<State> state_ = State::unnumbered;
  EventNumber announced_ = 0;
  bool few_ = false; // as it has said
  Time due_ = never;
  std::vector<wire::AbsentRange> absent_; // of one message; reused
};

} // namespace fanin::builder
