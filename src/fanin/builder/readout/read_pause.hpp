// How long a source is left alone after a read that took all it had: fragments that come one by one
// would wake their readout unit one by one. The pause grows as long as reads bring little, up to a
// part of the latency budget, and ends where they bring much, so that no socket buffer fills. It
// also ends where two reads in turn bring nothing: a source that has nothing for hours costs none.
#pragma once

#include <algorithm>
#include <cstdint>

#include "fanin/base/clock.hpp"

namespace fanin::builder {

class ReadPause {
public:
  // `longest`: 0 for none at all.
  explicit ReadPause(Duration longest) : longest_(longest) {}

  // After a read that brought so many bytes and left nothing. Pauses of sources that are read by
  // the same loop end together.
  void begin(std::uint64_t bytes, Time now) {
    if (bytes == 0 && now < std::max(until_, quiet_until_)) return; // read for another reason
    until_ = now;
    nothing_came_ = bytes == 0 && !nothing_came_;
    if (bytes == 0 && !nothing_came_) {
      quiet_until_ = now + longest_;
      return;
    }
    length_ = bytes >= much ? length_ / 2 : std::max(length_ * 2, shortest);
    if (length_ < shortest) length_ = Duration{0};
    length_ = std::min(length_, longest_);
    if (length_ > Duration{0}) until_ += length_ - now.time_since_epoch() % length_;
  }
  void end() { until_ = Time{}; }
  // The source is not read before this time. If it is past, the next data wake the readout unit.
  [[nodiscard]] Time until() const { return until_; }

private:
  static constexpr std::uint64_t much = 32U << 10; // half of the smallest socket buffer
  static constexpr Duration shortest = std::chrono::microseconds{500};

  Duration longest_;
  Duration length_{};
  Time until_{};
  Time quiet_until_{}; // nothing is no news, although there is no pause
  bool nothing_came_ = false; // at the last read
};

} // namespace fanin::builder
