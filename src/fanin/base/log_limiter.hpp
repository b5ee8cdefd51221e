// Lines that others can cause, as many as they like (refused peers, wrong bytes): only a few a
// second are said, and the next one that is says how many were left out.
//
// Thread: that of whoever owns it.
#pragma once

#include <cstdint>
#include <string_view>

#include "fanin/base/clock.hpp"
#include "fanin/base/log.hpp"

namespace fanin {

class LogLimiter {
public:
  static constexpr std::uint64_t lines_max = 3; // in a period
  static constexpr Duration period = std::chrono::seconds{1};

  void say(const LogFunction& log, Time now, LogLevel level, std::string_view text);

private:
  Time period_end_{};
  std::uint64_t said_ = 0;
  std::uint64_t left_out_ = 0;
};

} // namespace fanin
