/// \file
/// Limits log lines that others can cause without limit (refused peers, wrong bytes): only a few
/// are logged in a second, and the next line says how many were left out.
///
/// Thread: the owner's.
#pragma once

#include <cstdint>
#include <string_view>

#include "fanin/base/clock.hpp"
#include "fanin/base/export.hpp"
#include "fanin/base/log.hpp"

namespace fanin {

class LogLimiter {
public:
  static constexpr std::uint64_t lines_max = 3; ///< in a period
  static constexpr Duration period = std::chrono::seconds{1};

  /// False: it was left out.
  FANIN_API bool write(const LogFunction& log, Time now, LogLevel level, std::string_view text);

private:
  Time period_end_{};
  std::uint64_t lines_ = 0;
  std::uint64_t left_out_ = 0;
};

} // namespace fanin
