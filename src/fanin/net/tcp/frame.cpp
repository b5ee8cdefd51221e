#include "fanin/net/tcp/frame.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <string_view>

namespace fanin::net::tcp {
namespace {

constexpr std::string_view magic{"FANIN\0", 6};
constexpr std::size_t version_at = 7;
constexpr std::size_t max_message_at = 8;
constexpr std::size_t byte_order_at = 12;

std::byte native_byte_order() {
  return std::endian::native == std::endian::little ? std::byte{1} : std::byte{2};
}

void put32(std::byte* to, std::uint32_t value) {
  for (int i = 0; i < 4; ++i) to[i] = static_cast<std::byte>(value >> (8 * i));
}

std::uint32_t get32(const std::byte* from) {
  std::uint32_t value = 0;
  for (int i = 0; i < 4; ++i) value |= static_cast<std::uint32_t>(from[i]) << (8 * i);
  return value;
}

} // namespace

void encode_preface(std::span<std::byte, preface_size> to, const Preface& preface) {
  std::ranges::fill(to, std::byte{0});
  std::memcpy(to.data(), magic.data(), magic.size());
  to[version_at] = std::byte{preface.version};
  put32(to.data() + max_message_at, preface.max_message);
  to[byte_order_at] = native_byte_order();
}

bool may_be_preface(std::span<const std::byte> beginning) {
  const std::size_t size = std::min(beginning.size(), magic.size());
  return size == 0 || std::memcmp(beginning.data(), magic.data(), size) == 0;
}

Preface decode_preface(std::span<const std::byte, preface_size> from) {
  Preface preface;
  preface.version = std::to_integer<std::uint8_t>(from[version_at]);
  preface.max_message = get32(from.data() + max_message_at);
  preface.same_byte_order = from[byte_order_at] == native_byte_order();
  return preface;
}

void encode_taken(std::span<std::byte, taken_size> to, std::uint64_t messages) {
  put32(to.data(), static_cast<std::uint32_t>(messages));
  put32(to.data() + 4, static_cast<std::uint32_t>(messages >> 32));
}

std::uint64_t decode_taken(std::span<const std::byte, taken_size> from) {
  return get32(from.data()) | std::uint64_t{get32(from.data() + 4)} << 32;
}

void encode_header(std::span<std::byte, header_size> to, std::uint32_t length) {
  put32(to.data(), length);
  put32(to.data() + 4, length ^ header_check);
}

bool decode_header(std::span<const std::byte, header_size> from, std::uint32_t& length) {
  length = get32(from.data());
  return get32(from.data() + 4) == (length ^ header_check);
}

} // namespace fanin::net::tcp
