#include "fanin/base/clock.hpp"

#include <ctime>

namespace fanin {

Time MonotonicClock::now() const {
  timespec t{};
  clock_gettime(CLOCK_MONOTONIC, &t);
  return Time{std::chrono::seconds{t.tv_sec} + std::chrono::nanoseconds{t.tv_nsec}};
}

} // namespace fanin
