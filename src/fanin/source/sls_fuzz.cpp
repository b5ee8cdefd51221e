// Whatever is in an sls file, of any record size, and in a master file: an error or whole records.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "fanin/base/assert.hpp"
#include "fanin/source/sls_source.hpp"

namespace {

using namespace fanin;
using namespace fanin::source;

void replay(std::span<const std::byte> bytes, std::uint64_t image_size) {
  static const auto pool = memory::PagePool::make({.page_size = 4096, .pages = 80}).value();
  auto reader = SlsReader::over(FileWindow("fuzz.raw", bytes), image_size);
  if (!reader) return;
  FragmentQueue queue({.window = 64}, *pool);
  SlsSource source({.files = {}, .image_size = image_size, .replay = {.loops = 3, .rate_hz = 1e6}},
                   std::move(*reader));
  Time now{};
  if (!source.start(0, now)) return;
  for (int call = 0; call < 64; ++call) {
    const ReadResult result = source.read(queue, now);
    if (result.state == ReadState::finished || result.state == ReadState::failed) break;
    now += std::chrono::milliseconds{10};
    queue.release_until(queue.next_event());
  }
  FANIN_ASSERT(!queue.open());
}

} // namespace

// The first two bytes choose the image size.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  (void)find_sls_image_size({reinterpret_cast<const char*>(data), size});
  if (size < 2) return 0;
  const std::span bytes(reinterpret_cast<const std::byte*>(data), size);
  replay(bytes.subspan(2), static_cast<std::uint64_t>(data[0]) | std::uint64_t{data[1]} << 8);
  return 0;
}
