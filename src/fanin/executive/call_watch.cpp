#include "fanin/executive/call_watch.hpp"

#include <chrono>
#include <utility>

#include <fmt/format.h>

#include "fanin/base/units.hpp"

namespace fanin::executive {
namespace {

constexpr Duration blocked_long = std::chrono::seconds{1};
constexpr Duration blocked_log_period = std::chrono::minutes{1};

} // namespace

CallWatch::CallWatch(const Clock& clock, LogFunction log, std::string who, std::string what)
    : clock_(clock), log_(std::move(log)), who_(std::move(who)), what_(std::move(what)) {}

void CallWatch::ended(const char* function, Time begin) {
  const Time end = clock_.now();
  const Duration blocked = end - begin;
  if (blocked < blocked_long || (end < blocked_until_ && blocked < 2 * blocked_said_)) return;
  blocked_said_ = blocked;
  blocked_until_ = end + blocked_log_period;
  log_(LogLevel::warning,
       fmt::format("{}: its {}() has blocked its {} for {}; it must return at once", who_, function,
                   what_, format_duration(blocked)));
}

} // namespace fanin::executive
