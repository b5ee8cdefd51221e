// The life of a run, as the event manager leads it.
#pragma once

#include <cstdint>

#include "fanin/base/assert.hpp"

namespace fanin::builder {

enum class Phase : std::uint8_t {
  waiting,   // for all readout units, and a builder unit or (dealt by number) all of them
  running,   // events are read
  pausing,   // readout units stop reading, and say how far their sources got
  draining,  // the last event is known; what was announced is built
  finishing, // all is built; nodes close their files and send their last counters
  ended
};

// Its phase, which only goes forward.
class RunPhase {
public:
  [[nodiscard]] Phase now() const { return phase_; }
  [[nodiscard]] bool is(Phase phase) const { return phase_ == phase; }
  // Events are read or built: it has begun, and not everything is built.
  [[nodiscard]] bool building() const {
    return phase_ > Phase::waiting && phase_ < Phase::finishing;
  }

  // Each is allowed only where may_follow() says so.
  void run() { go(Phase::running); }
  void pause() { go(Phase::pausing); }
  void drain() { go(Phase::draining); }
  void finish() { go(Phase::finishing); }
  void end() { go(Phase::ended); }

  [[nodiscard]] static constexpr bool may_follow(Phase before, Phase next) {
    switch (next) {
    case Phase::waiting: return false;
    case Phase::running: return before == Phase::waiting;
    case Phase::pausing: return before == Phase::running;
    case Phase::draining: return before == Phase::running || before == Phase::pausing;
    case Phase::finishing: return before == Phase::waiting || before == Phase::draining;
    case Phase::ended: return before != Phase::ended;
    }
    return false;
  }

private:
  void go(Phase next) {
    FANIN_ASSERT(may_follow(phase_, next));
    phase_ = next;
  }

  Phase phase_ = Phase::waiting;
};

} // namespace fanin::builder
