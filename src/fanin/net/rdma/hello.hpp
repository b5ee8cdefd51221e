// What two ends say to each other where receives are posted ahead: each introduces itself in the
// private data with which the provider makes a connection (hello), and each message carries 32 bits
// beside its bytes (tag). Little-endian.
//
// hello, 24 bytes                                 tag
//    0  "FANINPST"                                   0..1   kind
//   10  u16 protocol version                            2   how many of your credit messages were
//   12  u32 largest message that this side takes            taken: odd or even
//   16  u32 credits: messages that may come          3..31  credits given back; of an end: messages
//   20  u32 zero                                            taken, modulo 2^16
//
// Far fewer messages than 2^16 are under way, so who gets an end knows whether all were taken.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "fanin/base/result.hpp"

namespace fanin::net::rdma {

inline constexpr std::uint16_t protocol_version = 1;
inline constexpr std::size_t hello_size = 24;
inline constexpr std::uint32_t credits_most = 1U << 16;

struct Hello {
  std::uint16_t version = protocol_version;
  std::uint32_t max_message = 0;
  std::uint32_t credits = 0;
};
using HelloBytes = std::array<std::byte, hello_size>;

[[nodiscard]] HelloBytes encode(const Hello& hello);
// Of another version, nothing but the version is known. What stands behind it (the provider may
// have padded it) is not looked at. Errors: malformed.
[[nodiscard]] Result<Hello> decode_hello(std::span<const std::byte> bytes);

enum class TagKind : std::uint8_t { message, credits, end };

struct Tag {
  TagKind kind = TagKind::message;
  bool odd = false;
  std::uint32_t credits = 0; // of an end: messages taken, as low_bits()
};

[[nodiscard]] constexpr std::uint32_t low_bits(std::uint32_t messages) {
  return messages % credits_most;
}

[[nodiscard]] constexpr std::uint32_t encode(Tag tag) {
  return static_cast<std::uint32_t>(tag.kind) | (tag.odd ? 4U : 0U) | tag.credits << 3;
}
// Empty: no peer sends such bits.
[[nodiscard]] constexpr std::optional<Tag> decode_tag(std::uint64_t bits) {
  if ((bits & 3) > 2 || bits >> 3 > credits_most) return {};
  return Tag{static_cast<TagKind>(bits & 3), (bits & 4) != 0,
             static_cast<std::uint32_t>(bits >> 3)};
}

} // namespace fanin::net::rdma
