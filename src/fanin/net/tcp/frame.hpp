// The bytes on a TCP connection. Both sides begin with a preface; then messages follow, each as
// [0 to 7 bytes of padding][header][payload]. The padding stands before the header and fills the
// payload before it up to a multiple of 8, so that payloads stay aligned in the receiver's page,
// and a message is complete with its last byte. All numbers are little-endian.
//
// preface, 32 bytes          header, 8 bytes
//   0  "FANIN", 0, 0           0  u32 payload length, or end_of_stream
//   7  u8  protocol version    4  u32 length ^ header_check
//   8  u32 largest message that this side takes
//  12  u8  1: little-endian metadata in messages, 2: big-endian
//  13  zero, ignored
//
// Behind a header with end_of_stream stands a u64: how many of the peer's messages this side has
// taken. It takes no more, so the peer knows what is lost.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace fanin::net::tcp {

inline constexpr std::size_t preface_size = 32;
inline constexpr std::size_t header_size = 8;
inline constexpr std::size_t taken_size = 8; // the number behind the last header
inline constexpr std::uint32_t alignment = 8;
// The first 8 bytes of the preface keep their meaning in all versions.
inline constexpr std::uint8_t protocol_version = 1;
// Says "nothing more follows": without it, the end of the stream is the peer's death.
inline constexpr std::uint32_t end_of_stream = 0xffffffffU;
inline constexpr std::uint32_t header_check = 0x464e494eU;

[[nodiscard]] constexpr std::uint32_t padding_after(std::uint32_t length) {
  return (0U - length) % alignment;
}

struct Preface {
  std::uint8_t version = protocol_version;
  std::uint32_t max_message = 0;
  bool same_byte_order = true;
};

void encode_preface(std::span<std::byte, preface_size> to, const Preface& preface);
// False as soon as a beginning of any length cannot be a preface.
[[nodiscard]] bool may_be_preface(std::span<const std::byte> beginning);
[[nodiscard]] Preface decode_preface(std::span<const std::byte, preface_size> from);

void encode_taken(std::span<std::byte, taken_size> to, std::uint64_t messages);
[[nodiscard]] std::uint64_t decode_taken(std::span<const std::byte, taken_size> from);

void encode_header(std::span<std::byte, header_size> to, std::uint32_t length);
// False: these bytes are no header.
[[nodiscard]] bool decode_header(std::span<const std::byte, header_size> from,
                                 std::uint32_t& length);

} // namespace fanin::net::tcp
