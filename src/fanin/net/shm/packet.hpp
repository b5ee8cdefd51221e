// What the two ends of a connection say over its Unix socket, a packet each, with descriptors: who
// they are (hello: the outbox and an eventfd), and the memory they send from (memory: a memfd, in
// the order in which Piece::memory counts). All numbers are little-endian.
//
// hello, 32 bytes                        memory, 32 bytes
//   0  "FANINSHM"                          0  "FANINMEM"
//  10  u16 protocol version                8  u64 size in bytes
//  12  u32 largest message it takes       16  zero
//  16  u32 size of an outbox
//  20  zero
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <variant>

#include "fanin/base/descriptor.hpp"
#include "fanin/base/result.hpp"

namespace fanin::net::shm {

inline constexpr std::size_t packet_size = 32;
inline constexpr std::uint16_t protocol_version = 1;
inline constexpr std::size_t descriptors_max = 2; // with one packet

struct Hello {
  std::uint16_t version = protocol_version;
  std::uint32_t max_message = 0;
  std::uint32_t outbox_size = 4096;
};
struct Memory {
  std::uint64_t size = 0;
};

using PacketBytes = std::array<std::byte, packet_size>;
[[nodiscard]] PacketBytes encode(const Hello& hello);
[[nodiscard]] PacketBytes encode(const Memory& memory);
// Errors: malformed.
[[nodiscard]] Result<std::variant<Hello, Memory>> decode(std::span<const std::byte> packet);

struct ReceivedPacket {
  std::array<std::byte, packet_size> bytes;
  std::size_t size = 0; // 0: nothing more comes
  std::array<Descriptor, descriptors_max> descriptors;
};
// Without blocking. False: errno says why (EAGAIN: the socket's buffer is full).
[[nodiscard]] bool send_packet(int socket, const PacketBytes& bytes,
                               std::span<const int> descriptors);
// Without blocking. Errors: malformed (too long, or too many descriptors); not_found: nothing is
// there now; disconnected: the peer has hung up, but what it has sent can still be received;
// exhausted: this process has no room for descriptors, or no memory, and the packet stays there.
[[nodiscard]] Result<ReceivedPacket> receive_packet(int socket);
// Whether nobody has the other end open any more.
[[nodiscard]] bool has_hung_up(int socket);

} // namespace fanin::net::shm
