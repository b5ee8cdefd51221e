// The life of a run, as the event manager leads it.
#pragma once

#include <cstdint>

#include "fanin/base/state.hpp"

namespace fanin::builder {

enum class Phase : std::uint8_t {
  waiting, // for all readout units with their sources, and a builder unit or (dealt by number) all
           // of them
  running, // events are read
  pausing, // readout units stop reading, and say how far their sources got
  draining, // the last event is known; what was announced is built
  finishing, // all is built; nodes close their files and send their last counters
  ended
};

[[nodiscard]] constexpr bool may_follow(Phase from, Phase to) {
  switch (to) {
  case Phase::waiting: return false;
  case Phase::running: return from == Phase::waiting;
  case Phase::pausing: return from == Phase::running;
  case Phase::draining: return from == Phase::running || from == Phase::pausing;
  case Phase::finishing: return from == Phase::waiting || from == Phase::draining;
  case Phase::ended: return from != Phase::ended;
  }
  return false;
}

// Its phase, which only goes forward.
class RunPhase {
public:
  [[nodiscard]] Phase now() const { return phase_; }
  [[nodiscard]] bool is(Phase phase) const { return phase_ == phase; }
  // Events are read or built: it has begun, and not everything is built.
  [[nodiscard]] bool building() const {
    return phase_ > Phase::waiting && phase_ < Phase::finishing;
  }

  void run() { phase_ = Phase::running; }
  void pause() { phase_ = Phase::pausing; }
  void drain() { phase_ = Phase::draining; }
  void finish() { phase_ = Phase::finishing; }
  void end() { phase_ = Phase::ended; }

private:
  CheckedState<Phase> phase_ = Phase::waiting;
};

} // namespace fanin::builder
