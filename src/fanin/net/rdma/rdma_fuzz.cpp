// Whatever a peer says of itself or beside a message: it is understood or refused, and the accounts
// stay within what was agreed. Likewise where it introduces itself over a connection beside.
#include <cstdint>
#include <cstring>
#include <span>

#include "fanin/base/assert.hpp"
#include "fanin/net/ofi/introduction.hpp"
#include "fanin/net/rdma/credits.hpp"
#include "fanin/net/rdma/hello.hpp"

namespace {

using namespace fanin::net::rdma;

void hear(Credits& credits, std::span<const std::byte> bytes) {
  std::uint64_t sent = 0;
  std::uint64_t allowed = 0;
  while (bytes.size() >= 4) {
    std::uint32_t bits = 0;
    std::memcpy(&bits, bytes.data(), sizeof bits);
    bytes = bytes.subspan(4);
    const auto tag = decode_tag(bits);
    if (!tag) return;
    FANIN_ASSERT(encode(*tag) == bits);
    if (tag->kind != TagKind::end) allowed += tag->credits;
    if (!credits.take(*tag)) return;
    if (tag->kind == TagKind::message) credits.posted(1);
    if (credits.update_is_due()) (void)credits.update();
    if (!credits.can_send()) continue;
    (void)credits.spend();
    ++sent;
    FANIN_ASSERT(sent <= allowed + credits_most);
  }
}

void meet(std::span<const std::byte> bytes) {
  namespace ofi = fanin::net::ofi;
  const auto met = ofi::decode_introduction(bytes);
  if (!met || !*met) return;
  FANIN_ASSERT((*met)->address.size() <= ofi::address_most);
  FANIN_ASSERT((*met)->number <= ofi::numbers_most);
  FANIN_ASSERT(ofi::size_of(**met) <= bytes.size());
  const auto rest = bytes.subspan(ofi::size_of(**met));
  if (rest.size() >= ofi::farewell_size)
    (void)ofi::decode_farewell(rest.first<ofi::farewell_size>());
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto bytes = std::as_bytes(std::span(data, size));
  const auto hello = decode_hello(bytes.first(size < hello_size ? size : hello_size));
  meet(bytes);
  Credits credits;
  (void)credits.start(4);
  if (hello && hello->version == protocol_version) {
    FANIN_ASSERT(hello->credits <= credits_most);
    credits.take_hello(*hello);
    hear(credits, bytes.subspan(hello_size));
  }
  return 0;
}
