// Numbers that readout units hold because they do not know whether these are right. A readout unit
// that holds one is told at once when others have reached it, hold the same one, or have come to
// their end.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "fanin/base/identity.hpp"
#include "fanin/base/state.hpp"
#include "fanin/wire/control.hpp"

namespace fanin::builder {

// Knows no connection and no time.
class HeldNumbers {
public:
  // `window`: numbers further ahead than that are jumps.
  HeldNumbers(std::size_t readout_units, std::uint64_t window)
      : window_(window), readouts_(readout_units) {}

  // A new incarnation, which holds nothing and goes on.
  void join(NodeId node);
  void leave(NodeId node);
  // It has announced its end, or taken that back.
  void announced_end(NodeId node, bool ended);
  // It holds a number, or none any more; what it held stays known, since others may come to hold
  // it, too. True: it has to be told of `horizon`.
  [[nodiscard]] bool hold(NodeId node, const wire::Held& held, EventNumber horizon);

  // Somebody waits for an answer.
  [[nodiscard]] bool any_waiting() const { return waiting_ > 0; }
  // The answer says something new: others have reached the number, have gone on where it has none
  // (beyond `end`, where it is), hold it too, or have come to their end. Then it counts as given.
  [[nodiscard]] bool take_new_answer(NodeId node, EventNumber horizon, EventNumber end);
  // The number that it holds.
  [[nodiscard]] std::optional<EventNumber> number(NodeId node) const {
    const Readout& readout = readouts_[node];
    return readout.holds() ? std::optional{readout.event} : std::nullopt;
  }
  // What a readout unit is told of the end of the known events, and of the number that it holds.
  [[nodiscard]] wire::Horizon answer(NodeId node, EventNumber horizon) const;

private:
  enum class State : std::uint8_t {
    none, // it holds none
    waiting, // it may hear more
    answered,
    past // it holds none any more; what it held stays known
  };
  friend constexpr bool may_follow(State from, State to) {
    switch (to) {
    case State::none: return false;
    case State::waiting: return true;
    case State::answered: return from == State::waiting;
    case State::past: return from != State::none;
    }
    return false;
  }
  struct Readout {
    bool here = false;
    bool final = false; // has announced its end
    bool all_held = false; // all its sources have come to their end, maybe with numbers held
    CheckedState<State> state = State::none;
    EventNumber event = 0; // its lowest number
    std::uint32_t count = 0; // of such messages, as it counts them
    EventNumber sent_horizon = 0; // the last one
    [[nodiscard]] bool holds() const { return state == State::waiting || state == State::answered; }
    [[nodiscard]] bool counts() const { return state != State::none; } // in holders_
    [[nodiscard]] bool waits() const { return state == State::waiting; }
    [[nodiscard]] bool goes_on() const { return here && !final && !all_held; }
  };
  template <class Change>
  void change(NodeId node, Change change);
  [[nodiscard]] bool alone(const Readout& readout) const;
  [[nodiscard]] bool held_by_another(const Readout& readout) const;

  std::uint64_t window_;
  std::vector<Readout> readouts_;
  std::size_t waiting_ = 0;
  std::size_t going_on_ = 0;
  std::map<EventNumber, std::size_t> holders_; // how many hold that number, or held it last
};

} // namespace fanin::builder
