// Whatever comes over a connection, its preface first, in pieces of any size, with a queue that
// fills up and empties: every fragment written lies within the queue, nothing stays open after the
// connection.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "fanin/base/assert.hpp"
#include "fanin/source/receive_decoder.hpp"

namespace {

using namespace fanin;
using namespace fanin::source;

void feed(std::span<const std::byte> bytes, std::size_t piece_max) {
  static const auto pool = memory::PagePool::make({.page_size = 4096, .pages = 80}).value();
  FragmentQueue queue({.source = 5, .window = 64, .fragment_max = 20000}, *pool);
  PrefaceReader preface;
  while (!preface.complete()) {
    const auto room = preface.room();
    FANIN_ASSERT(!room.empty());
    const std::size_t size = std::min({room.size(), bytes.size(), piece_max});
    if (size == 0) return;
    std::memcpy(room.data(), bytes.data(), size);
    preface.received(size);
    bytes = bytes.subspan(size);
  }
  FANIN_ASSERT(preface.room().empty());
  if (preface.fault() != ReceiveFault::none || preface.source() != 5) return;
  ReceiveDecoder decoder(5, true);
  const bool reliable = preface.sender() != 0;
  if (reliable) decoder.leave_out_below(piece_max);
  decoder.connect(reliable);
  for (std::size_t full = 0; !bytes.empty() && full < 1000;) {
    const auto piece = bytes.first(std::min(bytes.size(), piece_max));
    if (const auto direct = decoder.direct(queue); !direct.empty() && piece_max % 2 != 0) {
      const std::size_t size = std::min(direct.size(), piece.size());
      std::memcpy(direct.data(), piece.data(), size);
      decoder.received(size, queue);
      bytes = bytes.subspan(size);
      continue;
    }
    const auto taken = decoder.take(piece, queue);
    FANIN_ASSERT(taken.bytes <= piece.size());
    bytes = bytes.subspan(taken.bytes);
    if (taken.state == ReceiveDecoder::State::end) break;
    if (taken.state ==
        ReceiveDecoder::State::fault) { // what follows comes over the next connection
      (void)decoder.disconnect(queue);
      FANIN_ASSERT(!queue.open());
    }
    if (taken.state == ReceiveDecoder::State::full) {
      ++full;
      queue.release_until(queue.next_event());
    }
  }
  (void)decoder.disconnect(queue);
  FANIN_ASSERT(!queue.open());
  if (queue.numbered() && queue.next_event() != 0) (void)queue.entry(queue.next_event() - 1);
}

} // namespace

// The first byte chooses the size of the pieces.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::span bytes(reinterpret_cast<const std::byte*>(data), size);
  feed(bytes.subspan(1), std::size_t{1} + data[0]);
  return 0;
}
