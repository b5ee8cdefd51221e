#include "fanin/message/handshake.hpp"

#include <cstring>

namespace fanin::message {

std::expected<Hello, CloseReason> read_hello(std::span<const std::byte> bytes) {
  Hello hello;
  if (bytes.size() < offsetof(Hello, kind)) return std::unexpected(CloseReason::not_a_socket);
  std::memcpy(&hello.magic, bytes.data(), sizeof hello.magic);
  std::memcpy(&hello.version, bytes.data() + offsetof(Hello, version), sizeof hello.version);
  if (hello.magic != Hello::magic_value) return std::unexpected(CloseReason::not_a_socket);
  if (hello.version != Hello::version_value) return std::unexpected(CloseReason::wrong_version);
  if (bytes.size() != sizeof hello) return std::unexpected(CloseReason::not_a_socket);
  std::memcpy(static_cast<void*>(&hello), bytes.data(), sizeof hello);
  const bool is_expected = hello.kind >= SocketKind::low_latency &&
                           hello.kind <= SocketKind::subscribe_high_throughput &&
                           hello.refusal <= Refusal::wrong_kind && hello.reserved == 0 &&
                           hello.page_max >= Hello::page_max_least;
  if (!is_expected) return std::unexpected(CloseReason::not_a_socket);
  return hello;
}

} // namespace fanin::message
