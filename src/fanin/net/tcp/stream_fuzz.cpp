// The bytes of a TCP peer, in pieces that the first byte of the input chooses. Whatever comes,
// messages are within the limit and aligned, and in the end every page is home. The second byte
// says how many messages are held, and after how many the receiver closes; 0: never.
#include "fanin/net/tcp/stream_receiver.hpp"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <span>

using fanin::memory::View;
using fanin::net::PageFiller;
using fanin::net::tcp::StreamReceiver;

namespace {

constexpr std::uint32_t page_size = 8192;
constexpr std::uint32_t max_message = 3000;

void require(bool condition) {
  if (!condition) std::abort();
}

// What comes after close().
void discard(StreamReceiver& receiver, const std::uint8_t* data, std::size_t size,
             std::size_t cut) {
  receiver.take_no_more();
  auto bytes = std::as_bytes(std::span(data, size));
  while (receiver.discard({}) == StreamReceiver::Step::need_bytes && !bytes.empty()) {
    const std::size_t take = std::min(cut, bytes.size());
    (void)receiver.discard(bytes.first(take));
    bytes = bytes.subspan(take);
  }
}

// Copies the next bytes to where the receiver wants them; false at the end of the input.
bool feed(StreamReceiver& receiver, const std::uint8_t*& data, std::size_t& size, std::size_t cut,
          std::deque<View>& held) {
  iovec pieces[StreamReceiver::pieces_max];
  const std::size_t count = receiver.prepare(pieces);
  if (count == 0) {
    require(!held.empty()); // otherwise there would be a page
    held.clear();
    return true;
  }
  std::size_t total = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t take = std::min({pieces[i].iov_len, cut - total, size});
    if (take > 0) std::memcpy(pieces[i].iov_base, data, take);
    data += take;
    size -= take;
    total += take;
    if (take < pieces[i].iov_len) break;
  }
  receiver.received(total);
  return total > 0;
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 2) return 0;
  const std::size_t cut = data[0] == 0 ? SIZE_MAX : data[0];
  const std::size_t hold_max = data[1] % 8U;
  const std::size_t close_after = data[1] / 8U;
  data += 2;
  size -= 2;
  const auto pool = *fanin::memory::PagePool::make({.page_size = page_size, .pages = 3});
  PageFiller filler(*pool);
  {
    StreamReceiver receiver(filler, max_message);
    std::deque<View> held;
    bool more = true;
    for (std::size_t messages = 0; more;) {
      View view;
      switch (receiver.next(view)) {
      case StreamReceiver::Step::opened: break;
      case StreamReceiver::Step::message:
        require(view.size <= max_message && view.offset % PageFiller::alignment == 0);
        held.push_back(std::move(view));
        if (held.size() > hold_max) held.pop_front();
        more = ++messages != close_after;
        break;
      case StreamReceiver::Step::need_bytes: more = feed(receiver, data, size, cut, held); break;
      case StreamReceiver::Step::starved:
        require(!held.empty());
        held.clear();
        break;
      case StreamReceiver::Step::ended:
      case StreamReceiver::Step::failed: more = false; break;
      }
    }
    discard(receiver, data, size, cut);
  }
  require(pool->available() == pool->pages());
  return 0;
}
