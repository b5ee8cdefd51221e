/// \file
/// A random stream that gives the same numbers on all platforms. It uses only integer arithmetic:
/// results of std distributions and of libm differ between platforms. xoshiro256++ by D. Blackman
/// and S. Vigna (2019), seeded through splitmix64.
#pragma once

#include <array>
#include <cstdint>

namespace fanin {

/// Mixes the bits of a number: different numbers give different ones; 0 stays 0.
[[nodiscard]] constexpr std::uint64_t mix_bits(std::uint64_t z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9U;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebU;
  return z ^ (z >> 31);
}

/// The results look random, and different numbers give different ones.
[[nodiscard]] constexpr std::uint64_t splitmix64(std::uint64_t z) {
  return mix_bits(z + 0x9e3779b97f4a7c15U);
}

class Random {
public:
  explicit Random(std::uint64_t seed) {
    for (auto& word : state_) {
      word = splitmix64(seed);
      seed += 0x9e3779b97f4a7c15U;
    }
  }

  /// A number, uniform over all 64-bit values.
  std::uint64_t next() {
    const std::uint64_t result = rotate(state_[0] + state_[3], 23) + state_[0];
    const std::uint64_t t = state_[1] << 17;
    state_[2] ^= state_[0];
    state_[3] ^= state_[1];
    state_[1] ^= state_[2];
    state_[0] ^= state_[3];
    state_[2] ^= t;
    state_[3] = rotate(state_[3], 45);
    return result;
  }

  /// A number, uniform in [0, bound); 0 for bound 0. The bias is below 2^-32 for bounds under 2^32.
  std::uint64_t below(std::uint64_t bound) {
    __extension__ using Wide = unsigned __int128;
    return static_cast<std::uint64_t>((static_cast<Wide>(next()) * bound) >> 64);
  }

  /// A number, uniform in [0, 1), with 53 bits.
  double unit() { return static_cast<double>(next() >> 11) * 0x1.0p-53; }

  /// True with probability `numerator / denominator`.
  bool chance(std::uint64_t numerator, std::uint64_t denominator) {
    return below(denominator) < numerator;
  }

private:
  static std::uint64_t rotate(std::uint64_t x, int k) { return (x << k) | (x >> (64 - k)); }
  std::array<std::uint64_t, 4> state_{};
};

} // namespace fanin
