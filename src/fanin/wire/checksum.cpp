#include "fanin/wire/checksum.hpp"

#include <isa-l/crc.h>

#include <algorithm>
#include <array>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace fanin::wire {
namespace {

// ISA-L takes an int length, and a pointer to non-const that it only reads.
std::uint32_t update_by_isal(const std::byte* data, std::size_t size, std::uint32_t state) {
  auto* bytes = reinterpret_cast<unsigned char*>(const_cast<std::byte*>(data));
  return crc32_iscsi(bytes, static_cast<int>(size), state);
}

// Polynomials modulo P, bits reversed: the highest bit is x^0.
constexpr std::uint32_t x_to_0 = 1U << 31;
constexpr std::uint32_t generator = 0x82f63b78;

constexpr std::uint32_t times_x(std::uint32_t p) {
  return (p >> 1) ^ ((p & 1) != 0 ? generator : 0);
}
constexpr std::uint32_t over_x(std::uint32_t p) {
  return (p & x_to_0) != 0 ? ((p ^ generator) << 1) | 1 : p << 1;
}
constexpr std::uint32_t times(std::uint32_t a, std::uint32_t b) {
  std::uint32_t result = 0;
  for (; b != 0; b <<= 1, a = times_x(a)) result ^= (b & x_to_0) != 0 ? a : 0;
  return result;
}

// shift_by[d][n] moves a state over n * 256^d bytes of zeros: x^(8 n 256^d - 33) mod P. Both ways
// to multiply by it add 33.
constexpr auto shift_by = [] {
  std::array<std::array<std::uint32_t, 256>, 4> table{};
  std::uint32_t least = x_to_0;
  for (int i = 0; i < 33; ++i) least = over_x(least);
  std::uint32_t step = x_to_0 >> 8;
  for (auto& digit : table) {
    digit[0] = least;
    for (std::size_t n = 1; n < digit.size(); ++n) digit[n] = times(digit[n - 1], step);
    for (int i = 0; i < 8; ++i) step = times(step, step);
  }
  return table;
}();

std::uint32_t multiply_bit_by_bit(std::uint32_t state, std::uint32_t by) {
  std::uint64_t product = 0;
  for (int bit = 0; bit < 32; ++bit) product ^= (by >> bit & 1) * std::uint64_t{state} << bit;
  return update_by_isal(reinterpret_cast<const std::byte*>(&product), sizeof product, 0);
}

#if defined(__x86_64__)

// Below 256 bytes ISA-L runs a single chain of crc32 instructions, three cycles each, which is what
// a fragment of 200 bytes then mostly costs. Here three thirds run side by side and are joined by
// carry-less multiplication: 200 bytes just written take less than half the time.
constexpr std::size_t short_max = 255;

std::uint64_t load(const std::byte* data) {
  std::uint64_t word;
  std::memcpy(&word, data, sizeof word);
  return word;
}

// To be reduced by one more step of the checksum.
[[gnu::target("sse4.2,pclmul")]] std::uint64_t multiply(std::uint64_t state, std::uint32_t by) {
  const __m128i product = _mm_clmulepi64_si128(_mm_cvtsi64_si128(static_cast<long long>(state)),
                                               _mm_cvtsi64_si128(by), 0);
  return static_cast<std::uint64_t>(_mm_cvtsi128_si64(product));
}

[[gnu::target("sse4.2,pclmul")]] std::uint32_t multiply_at_once(std::uint32_t state,
                                                                std::uint32_t by) {
  return static_cast<std::uint32_t>(_mm_crc32_u64(0, multiply(state, by)));
}

[[gnu::target("sse4.2,pclmul")]] std::uint32_t update_short(const std::byte* data, std::size_t size,
                                                            std::uint32_t state) {
  std::uint64_t first = state;
  if (const std::size_t third = size / 24 * 8; third != 0) {
    std::uint64_t second = 0;
    std::uint64_t last = 0;
    const std::byte* const end = data + third - 8;
    for (; data != end; data += 8) {
      first = _mm_crc32_u64(first, load(data));
      second = _mm_crc32_u64(second, load(data + third));
      last = _mm_crc32_u64(last, load(data + 2 * third));
    }
    first = _mm_crc32_u64(first, load(data));
    second = _mm_crc32_u64(second, load(data + third));
    const std::uint64_t carried =
        multiply(first, shift_by[0][2 * third]) ^ multiply(second, shift_by[0][third]);
    first = _mm_crc32_u64(last, load(data + 2 * third) ^ carried);
    data += 2 * third + 8;
    size -= 3 * third;
  }
  for (; size >= 8; size -= 8, data += 8) first = _mm_crc32_u64(first, load(data));
  auto result = static_cast<std::uint32_t>(first);
  if ((size & 4) != 0) {
    std::uint32_t word;
    std::memcpy(&word, data, sizeof word);
    result = _mm_crc32_u32(result, word);
    data += 4;
  }
  if ((size & 2) != 0) {
    std::uint16_t word;
    std::memcpy(&word, data, sizeof word);
    result = _mm_crc32_u16(result, word);
    data += 2;
  }
  if ((size & 1) != 0) result = _mm_crc32_u8(result, static_cast<std::uint8_t>(*data));
  return result;
}

// Right before static initialization too, only slower.
constinit auto update_small = update_by_isal;
constinit auto multiplied = multiply_bit_by_bit;
[[maybe_unused]] const bool chosen = [] {
  if (__builtin_cpu_supports("sse4.2") != 0 && __builtin_cpu_supports("pclmul") != 0) {
    update_small = update_short;
    multiplied = multiply_at_once;
  }
  return true;
}();

#else
constexpr std::size_t short_max = 0;
constexpr auto update_small = update_by_isal;
constexpr auto multiplied = multiply_bit_by_bit;
#endif

} // namespace

std::uint32_t crc32c(std::span<const std::byte> bytes, std::uint32_t previous) {
  if (bytes.size() <= short_max) return ~update_small(bytes.data(), bytes.size(), ~previous);
  constexpr std::size_t piece_max = 1U << 30;
  std::uint32_t state = ~previous;
  while (!bytes.empty()) {
    const auto piece = bytes.first(std::min(bytes.size(), piece_max));
    state = update_by_isal(piece.data(), piece.size(), state);
    bytes = bytes.subspan(piece.size());
  }
  return ~state;
}

std::uint32_t crc32c_of_both(std::uint32_t first, std::uint32_t second, std::uint32_t second_size) {
  for (const auto& digit : shift_by) {
    if (const std::uint32_t n = second_size % 256; n != 0) first = multiplied(first, digit[n]);
    second_size /= 256;
  }
  return first ^ second;
}

} // namespace fanin::wire
