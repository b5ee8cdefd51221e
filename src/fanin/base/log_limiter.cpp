#include "fanin/base/log_limiter.hpp"

#include <utility>

#include <fmt/format.h>

#include "fanin/base/counted.hpp"

namespace fanin {

bool LogLimiter::write(const LogFunction& log, Time now, LogLevel level, std::string_view text) {
  if (now >= period_end_) {
    period_end_ = now + period;
    lines_ = 0;
  }
  if (lines_ == lines_max) {
    ++left_out_;
    return false;
  }
  ++lines_;
  const std::uint64_t before = std::exchange(left_out_, 0);
  if (before == 0) {
    log(level, text);
  } else {
    log(level, fmt::format("{} (and {} left out before)", text,
                           counted(before, "such line was", "such lines were")));
  }
  return true;
}

} // namespace fanin
