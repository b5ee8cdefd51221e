// Whatever is in an HLD file: no read past the end, every block inside the file, an error or an
// end.
#include <cstddef>
#include <cstdint>

#include "fanin/base/assert.hpp"
#include "fanin/source/hld_source.hpp"

namespace {

using namespace fanin;
using namespace fanin::source;

void decode(std::span<const std::byte> bytes) {
  HldReader reader(FileWindow("fuzz.hld", bytes));
  std::uint64_t last = 0;
  while (true) {
    const auto event = reader.next_event();
    if (!event || !*event) return;
    while (true) {
      const auto block = reader.next_block();
      if (!block) return;
      if (!*block) break;
      const HldBlock& found = reader.block();
      FANIN_ASSERT(found.offset >= last && found.bytes.size() >= 4);
      FANIN_ASSERT(found.offset + found.bytes.size() <= bytes.size());
      FANIN_ASSERT(found.bytes.data() == bytes.data() + found.offset);
      last = found.offset + found.bytes.size();
    }
  }
}

// The whole source, looping and paced, in a bounded number of calls.
void replay(std::span<const std::byte> bytes) {
  static const auto pool = memory::PagePool::make({.page_size = 4096, .pages = 80}).value();
  FragmentQueue queue({.window = 64}, *pool);
  const std::uint16_t address = 0xe000;
  HldSource source({.path = {}, .address = address, .replay = {.loops = 3, .rate_hz = 1e6}},
                   FileWindow("fuzz.hld", bytes));
  Time now{};
  if (!source.start(0, now)) return;
  for (int call = 0; call < 64; ++call) {
    const ReadResult result = source.read(queue, now);
    if (result.state == ReadState::finished || result.state == ReadState::failed) break;
    now += std::chrono::milliseconds{10};
    queue.release_until(queue.next_event());
  }
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::span bytes(reinterpret_cast<const std::byte*>(data), size);
  decode(bytes);
  replay(bytes);
  return 0;
}
