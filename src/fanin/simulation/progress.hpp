// What watches over a simulation while it runs.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>

#include "fanin/base/clock.hpp"
#include "fanin/base/result.hpp"
#include "fanin/fabric/time.hpp"

namespace fanin::simulation {

// How far a simulation is, in virtual time.
struct Passed {
  Duration now{};
  Duration end{}; // 0: not known before it is there
  [[nodiscard]] double share() const { // 0 to 1
    if (end <= Duration{}) return 0;
    return std::min(1.0, static_cast<double>(now.count()) / static_cast<double>(end.count()));
  }
};

// Called now and then.
using Watch = std::function<void(const Passed& passed)>;

// Call it for each event of a simulation that lasts until `end`.
class ProgressCheck {
public:
  ProgressCheck(fabric::Picoseconds end, const Watch& watch) : end_(end), watch_(watch) {}

  // Errors: refused, where virtual time stands still.
  [[nodiscard]] Result<> event(fabric::Picoseconds now) {
    if (++events_ % interval != 0) return {};
    if (now == last_ && ++same_ == standstill)
      return fail(ErrorKind::refused,
                  "the virtual time stands still: messages or packets take no time");
    if (now != last_) same_ = 0;
    last_ = now;
    if (watch_)
      watch_({fabric::to_time(now).time_since_epoch(), fabric::to_time(end_).time_since_epoch()});
    return {};
  }

private:
  static constexpr std::uint64_t interval = 1U << 14;
  static constexpr std::uint32_t standstill = 1U << 10; // about 16 million events
  fabric::Picoseconds end_;
  const Watch& watch_;
  std::uint64_t events_ = 0;
  fabric::Picoseconds last_ = -1;
  std::uint32_t same_ = 0;
};

} // namespace fanin::simulation
