// Time of the simulated network: whole picoseconds since its begin, so that 64 B at 100 Gb/s are
// exactly 5120. An int64 holds 106 days.
#pragma once

#include <cmath>
#include <cstdint>

#include "fanin/base/clock.hpp"

namespace fanin::fabric {

using Picoseconds = std::int64_t;

inline constexpr Picoseconds picoseconds_per_ns = 1000;

[[nodiscard]] constexpr Picoseconds to_picoseconds(Duration time) {
  return time.count() * picoseconds_per_ns;
}

// Rounded up: nothing arrives before it has.
[[nodiscard]] constexpr Time to_time(Picoseconds time) {
  return Time{Duration{(time + picoseconds_per_ns - 1) / picoseconds_per_ns}};
}

// Bytes in a second, kept as the time of a byte. Unlimited by default.
class Rate {
public:
  Rate() = default;
  explicit Rate(double bytes_per_second)
      : time_of_byte_(static_cast<std::uint64_t>(std::llround(1e12 * scale / bytes_per_second))) {}

  [[nodiscard]] Picoseconds time_of(std::uint64_t bytes) const {
    __extension__ using Wide = unsigned __int128;
    return static_cast<Picoseconds>((Wide{bytes} * time_of_byte_ + half) >> scale_bits);
  }
  [[nodiscard]] bool limited() const { return time_of_byte_ != 0; }

private:
  static constexpr int scale_bits = 32;
  static constexpr double scale = 4294967296.0;
  static constexpr std::uint64_t half = 1ULL << (scale_bits - 1);
  std::uint64_t time_of_byte_ = 0; // picoseconds, times 2^32
};

} // namespace fanin::fabric
