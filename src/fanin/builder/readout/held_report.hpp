// What a readout unit has told the event manager of the numbers that its sources hold, since they
// do not know whether these are right (HeldNumbers is the other end). It tells the lowest one.
#pragma once

#include <cstdint>
#include <optional>

#include "fanin/base/identity.hpp"
#include "fanin/net/first_count.hpp"
#include "fanin/wire/control.hpp"

namespace fanin::builder {

// Knows no connection and no time.
class HeldReport {
public:
  // `first`: where its messages begin to be counted.
  explicit HeldReport(std::uint32_t first = net::first_count) : count_(first) {}

  // What has to be said to the event manager; empty: nothing. `lowest`: of the numbers that are
  // held now; empty: there is none. `ended`: all sources have come to their end. Call reported() if
  // the message was sent.
  [[nodiscard]] std::optional<wire::Held> next(std::optional<EventNumber> lowest,
                                               bool ended) const {
    if (lowest) {
      const bool known = state_ == State::holds && number_ == *lowest && ended_ == ended;
      if (known) return {};
      return wire::Held{.event = *lowest, .count = count_ + 1, .ended = ended ? 1U : 0U};
    }
    if (state_ == State::holds_none) return {};
    return wire::Held{.event = event_number_end, .count = count_ + 1};
  }
  void reported(const wire::Held& message) {
    state_ = message.event < event_number_end ? State::holds : State::holds_none;
    number_ = message.event;
    ended_ = message.ended != 0;
    count_ = message.count;
    answered_ = false;
  }

  // The event manager has said what it knows of the number.
  void on_answer(const wire::Horizon& answer) { answered_ |= answer.held == count_; }
  // The event manager knows this, as next() has told it, and has answered.
  [[nodiscard]] bool answered(std::optional<EventNumber> lowest, bool ended) const {
    return !next(lowest, ended) && answered_;
  }
  // Another readout unit holds the number that was told last.
  [[nodiscard]] bool confirmed_by(const wire::Horizon& answer) const {
    return answer.equal != 0 && answer.held == count_;
  }
  // The number that was told last; event_number_end: none is held.
  [[nodiscard]] EventNumber number() const { return number_; }

private:
  enum class State : std::uint8_t { holds_none, holds }; // as the event manager knows
  State state_ = State::holds_none;
  EventNumber number_ = 0;
  bool ended_ = false; // told with the number
  std::uint32_t count_; // messages; it wraps
  bool answered_ = true;
};

} // namespace fanin::builder
