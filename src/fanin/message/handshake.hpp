/// \file
/// The first message of each side of a connection: its kind and its limits. The side that connects
/// sends it first. The listening side answers with the same layout, and closes the connection if
/// `refusal` is not none. Little-endian, 8-byte aligned.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <expected>
#include <span>

#include "fanin/base/clock.hpp"
#include "fanin/message/peer.hpp"

namespace fanin::message {

/// The kind of connection, named after its user-level sockets (Schumacher 2017, table II).
enum class SocketKind : std::uint8_t {
  low_latency = 1,
  high_throughput = 2,
  subscribe_low_latency = 3,
  subscribe_high_throughput = 4
};

enum class Refusal : std::uint8_t { none = 0, wrong_version = 1, wrong_kind = 2 };

struct Hello {
  static constexpr std::uint32_t magic_value = 0x4f49544e; ///< "NTIO"
  static constexpr std::uint16_t version_value = 1; ///< rises with every change of a layout
  static constexpr std::uint32_t page_max_least = 1024; ///< bytes; a peer that takes less is no
                                                        ///< fanin process

  std::uint32_t magic = magic_value; ///< magic and version have this place in all versions
  std::uint16_t version = version_value;
  SocketKind kind{};
  Refusal refusal = Refusal::none; ///< of an answer
  std::uint32_t page_max = 0; ///< bytes: the largest transport message that the sender of the hello
                              ///< takes
  std::uint32_t reserved = 0;
  std::uint64_t message_max = 0; ///< bytes: the largest message that the sender of the hello takes
  /// If memory is shared: most bytes of the memory of the hello's sender that its peer may hold for
  /// an incomplete message. The peer copies the bytes beyond that. This limit is lower than the one
  /// at which the sender stops.
  std::uint64_t lent_max = 0;
};
static_assert(sizeof(Hello) == 32);
static_assert(offsetof(Hello, version) == 4 && offsetof(Hello, kind) == 6);
static_assert(offsetof(Hello, refusal) == 7 && offsetof(Hello, page_max) == 8);
static_assert(offsetof(Hello, message_max) == 16 && offsetof(Hello, lent_max) == 24);

/// How long each side waits for the other's hello.
inline constexpr Duration hello_timeout = std::chrono::seconds{5};

/// Decodes bytes from a peer: a valid Hello, or the reason to close (not_a_socket, wrong_version).
/// It checks neither `refusal` nor whether `kind` fits.
[[nodiscard]] std::expected<Hello, CloseReason> read_hello(std::span<const std::byte> bytes);

} // namespace fanin::message
