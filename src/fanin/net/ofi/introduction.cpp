#include "fanin/net/ofi/introduction.hpp"
#include "fanin/base/try.hpp"

#include <algorithm>
#include <bit>
#include <cstring>

namespace fanin::net::ofi {
namespace {

static_assert(std::endian::native == std::endian::little, "introductions are little-endian");

constexpr char magic[] = "FANINRDM";
constexpr std::size_t magic_size = 8;
constexpr char bye[] = "BYE!";
constexpr std::size_t bye_size = 4;

std::uint32_t number_at(std::span<const std::byte> bytes, std::size_t offset) {
  std::uint32_t number = 0;
  std::memcpy(&number, bytes.data() + offset, sizeof number);
  return number;
}

} // namespace

std::vector<std::byte> encode(const Introduction& introduction) {
  std::vector<std::byte> bytes(size_of(introduction));
  const std::uint32_t refused = introduction.refused ? 1 : 0;
  const auto size = static_cast<std::uint32_t>(introduction.address.size());
  std::memcpy(bytes.data(), magic, magic_size);
  std::memcpy(bytes.data() + 8, &introduction.number, 4);
  std::memcpy(bytes.data() + 12, &refused, 4);
  std::memcpy(bytes.data() + 16, &size, 4);
  std::ranges::copy(introduction.hello, bytes.begin() + 24);
  std::ranges::copy(introduction.address, bytes.begin() + introduction_least);
  return bytes;
}

Result<std::optional<Introduction>> decode_introduction(std::span<const std::byte> bytes) {
  const auto invalid = fail(ErrorKind::malformed, "sent an introduction that is not fanin's");
  if (bytes.empty()) return std::nullopt;
  if (std::memcmp(bytes.data(), magic, std::min(bytes.size(), magic_size)) != 0) return invalid;
  if (bytes.size() < introduction_least) return std::nullopt;
  Introduction made;
  std::ranges::copy(bytes.subspan(24, made.hello.size()), made.hello.begin());
  const auto hello = FANIN_TRY(rdma::decode_hello(made.hello));
  made.refused = number_at(bytes, 12) != 0;
  if (hello.version != rdma::protocol_version) return made;
  made.number = number_at(bytes, 8);
  const std::uint32_t size = number_at(bytes, 16);
  const bool numbers = number_at(bytes, 12) <= 1 && number_at(bytes, 20) == 0 &&
                       size <= address_most && made.number <= numbers_most;
  // Who refuses has no endpoint.
  if (!numbers || made.refused != (size == 0) || made.refused != (made.number == 0)) return invalid;
  if (bytes.size() < introduction_least + size) return std::nullopt;
  const auto address = bytes.subspan(introduction_least, size);
  made.address.assign(address.begin(), address.end());
  return made;
}

std::array<std::byte, farewell_size> encode_farewell(std::uint32_t sent) {
  std::array<std::byte, farewell_size> bytes{};
  std::memcpy(bytes.data(), bye, bye_size);
  std::memcpy(bytes.data() + bye_size, &sent, sizeof sent);
  return bytes;
}

Result<std::uint32_t> decode_farewell(std::span<const std::byte, farewell_size> bytes) {
  if (std::memcmp(bytes.data(), bye, bye_size) != 0)
    return fail(ErrorKind::malformed, "sent bytes that are not fanin's");
  return number_at(bytes, bye_size);
}

} // namespace fanin::net::ofi
