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

#if defined(__x86_64__)

// Below 256 bytes ISA-L runs a single chain of crc32 instructions, three cycles each, which is what
// a fragment of 200 bytes then mostly costs. Here three thirds run side by side and are joined by
// carry-less multiplication: 200 bytes just written take less than half the time.
constexpr std::size_t short_max = 255;
constexpr std::size_t words_max = short_max / 24;

// shift_by[w]: moves a state over w words of zeros: x^(64 w - 33) mod P, bits reversed.
constexpr auto shift_by = [] {
  std::array<std::uint32_t, 2 * words_max + 1> table{};
  std::uint32_t power = 1; // x^31 in reversed bits
  for (std::size_t w = 1, exponent = 31; w < table.size(); ++w) {
    for (; exponent < 64 * w - 33; ++exponent) {
      power = (power >> 1) ^ ((power & 1) != 0 ? 0x82f63b78U : 0U);
    }
    table[w] = power;
  }
  return table;
}();

std::uint64_t load(const std::byte* data) {
  std::uint64_t word;
  std::memcpy(&word, data, sizeof word);
  return word;
}

[[gnu::target("sse4.2,pclmul")]] std::uint64_t shifted(std::uint64_t state, std::size_t words) {
  const __m128i product = _mm_clmulepi64_si128(_mm_cvtsi64_si128(static_cast<long long>(state)),
                                               _mm_cvtsi64_si128(shift_by[words]), 0);
  return static_cast<std::uint64_t>(_mm_cvtsi128_si64(product));
}

[[gnu::target("sse4.2,pclmul")]] std::uint32_t update_short(const std::byte* data, std::size_t size,
                                                            std::uint32_t state) {
  std::uint64_t first = state;
  if (const std::size_t words = size / 24; words != 0) {
    const std::size_t third = words * 8;
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
    const std::uint64_t carried = shifted(first, 2 * words) ^ shifted(second, words);
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
[[maybe_unused]] const bool chosen = [] {
  if (__builtin_cpu_supports("sse4.2") != 0 && __builtin_cpu_supports("pclmul") != 0) {
    update_small = update_short;
  }
  return true;
}();

#else
constexpr std::size_t short_max = 0;
constexpr auto update_small = update_by_isal;
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

} // namespace fanin::wire
