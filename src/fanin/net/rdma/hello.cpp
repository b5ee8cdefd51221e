#include "fanin/net/rdma/hello.hpp"

#include <bit>
#include <cstring>

namespace fanin::net::rdma {
namespace {

static_assert(std::endian::native == std::endian::little, "hellos are little-endian");

constexpr char magic[] = "FANINPST";
constexpr std::size_t magic_size = 8;
constexpr std::size_t version_at = 10;

} // namespace

HelloBytes encode(const Hello& hello) {
  HelloBytes bytes{};
  std::memcpy(bytes.data(), magic, magic_size);
  std::memcpy(bytes.data() + version_at, &hello.version, sizeof hello.version);
  std::memcpy(bytes.data() + 12, &hello.max_message, 4);
  std::memcpy(bytes.data() + 16, &hello.credits, 4);
  return bytes;
}

Result<Hello> decode_hello(std::span<const std::byte> bytes) {
  if (bytes.size() < hello_size || std::memcmp(bytes.data(), magic, magic_size) != 0)
    return fail(ErrorKind::malformed, "sent an introduction that is not fanin's");
  Hello hello;
  std::memcpy(&hello.version, bytes.data() + version_at, sizeof hello.version);
  if (hello.version != protocol_version) return hello;
  std::memcpy(&hello.max_message, bytes.data() + 12, 4);
  std::memcpy(&hello.credits, bytes.data() + 16, 4);
  std::uint32_t zero = 0;
  std::memcpy(&zero, bytes.data() + 20, 4);
  if (hello.credits > credits_most || zero != 0)
    return fail(ErrorKind::malformed, "sent an introduction with impossible values");
  return hello;
}

} // namespace fanin::net::rdma
