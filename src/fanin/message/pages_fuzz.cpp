// What a high-throughput receiver makes of arbitrary pages, and what a handshake of arbitrary
// bytes. Input: for each page a byte that says how much of it comes apart (net::Event::rest), a
// 16-bit length, and the bytes.
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "fanin/memory/heap_page.hpp"
#include "fanin/message/handshake.hpp"
#include "fanin/message/page_queue.hpp"

using namespace fanin;
using namespace fanin::message;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const auto context =
      Context::make({.send_pool = {.page_size = 4096, .pages = 4, .arena = {}},
                     .receive_pool = {.page_size = 8192, .pages = 4, .arena = {}}})
          .value();
  std::span rest{reinterpret_cast<const std::byte*>(data), size};
  (void)read_hello(rest);
  SocketCounters counters;
  bool bad = false;
  PageQueue queue(*context, counters, {.message_max = 2000, .unfinished_max = 1000},
                  [&bad](PageSource&, CloseReason) { bad = true; });
  const auto source = std::make_shared<PageSource>();
  source->lent_max = 500;
  Message message;
  std::uint64_t sum = 0;
  while (rest.size() >= 3 && !bad) {
    const auto apart = static_cast<std::size_t>(rest[0]);
    std::uint16_t length = 0;
    std::memcpy(&length, rest.data() + 1, sizeof length);
    rest = rest.subspan(3);
    const auto bytes = rest.first(std::min<std::size_t>(length, rest.size()));
    rest = rest.subspan(bytes.size());
    const auto first = bytes.size() - std::min(bytes.size(), apart);
    queue.push(source, memory::HeapPage::copy(bytes.first(first)),
               memory::HeapPage::copy(bytes.subspan(first)));
    while (queue.next(message)) {
      if (message.size() > 2000) __builtin_trap();
      for (const std::byte byte : message.bytes()) sum += static_cast<std::uint64_t>(byte);
    }
  }
  queue.end(source);
  while (queue.next(message)) sum += message.size();
  return sum == ~std::uint64_t{0} ? 1 : 0;
}
