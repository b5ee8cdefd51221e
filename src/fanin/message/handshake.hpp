// The first message on a connection, from either side: who I am and what I take. The side that
// connects speaks first; the listening side answers with the same layout, and closes the connection
// if `refusal` is not none. Little-endian, 8-byte aligned.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <expected>
#include <span>
#include <string_view>

#include "fanin/base/clock.hpp"
#include "fanin/message/peer.hpp"

namespace fanin::message {

// The kind of connection, named after its user-level sockets (Schumacher 2017, table II).
enum class SocketKind : std::uint8_t {
  low_latency = 1,
  high_throughput = 2,
  subscribe_low_latency = 3,
  subscribe_high_throughput = 4
};
[[nodiscard]] std::string_view name(SocketKind kind);

enum class Refusal : std::uint8_t { none = 0, wrong_version = 1, wrong_kind = 2 };

struct Hello {
  static constexpr std::uint32_t magic_value = 0x4f49544e; // "NTIO"
  static constexpr std::uint16_t version_value = 1; // goes up with every change of any layout
  static constexpr std::uint32_t page_max_least = 1024; // who takes less is none of ours

  std::uint32_t magic = magic_value; // magic and version stay where they are in all versions
  std::uint16_t version = version_value;
  SocketKind kind{};
  Refusal refusal = Refusal::none; // of an answer
  std::uint32_t page_max = 0; // bytes: the largest transport message that the speaker takes
  std::uint32_t reserved = 0;
  std::uint64_t message_max = 0; // bytes: the largest message that the speaker takes
  // Where memory is shared: bytes of the speaker's messages that may be held for one that is not
  // complete; the receiver copies what is beyond. Less than what stops the speaker.
  std::uint64_t lent_max = 0;
};
static_assert(sizeof(Hello) == 32);
static_assert(offsetof(Hello, version) == 4 && offsetof(Hello, kind) == 6);
static_assert(offsetof(Hello, refusal) == 7 && offsetof(Hello, page_max) == 8);
static_assert(offsetof(Hello, message_max) == 16 && offsetof(Hello, lent_max) == 24);

// How long either side waits for the other's hello.
inline constexpr Duration hello_timeout = std::chrono::seconds{5};

// Of bytes from a peer: a Hello that makes sense, or the reason to close (not_a_socket,
// wrong_version). Does not look at `refusal`, nor whether `kind` is the right one.
[[nodiscard]] std::expected<Hello, CloseReason> read_hello(std::span<const std::byte> bytes);

} // namespace fanin::message
