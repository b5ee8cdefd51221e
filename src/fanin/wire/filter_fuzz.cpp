// Whatever is in a message between builder and filter units: no read past the end, and what was
// decoded is inside its message.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "fanin/base/assert.hpp"
#include "fanin/wire/filter.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::vector<std::byte> message(size); // exactly as long, so that a sanitizer sees a read past it
  if (size != 0) std::memcpy(message.data(), data, size);
  if (const auto hello = fanin::wire::decode_filter_hello(message))
    FANIN_ASSERT(hello->ahead != 0 && hello->text().size() <= hello->name.size());
  if (const auto batch = fanin::wire::decode_filter_batch(message))
    FANIN_ASSERT(batch->from < batch->events && batch->range().count() == batch->events);
  if (const auto view = fanin::wire::decode_filter_decided(message)) {
    std::uint64_t results = 0;
    for (const auto& decision : view->decisions) results += decision.result_size;
    FANIN_ASSERT(results == view->results.size() && view->decisions.size() == view->decided.count);
  }
  const auto refusal = fanin::wire::decode_filter_refusal(message);
  if (fanin::wire::is_filter_refusal(message) && refusal)
    FANIN_ASSERT(refusal->size() <= fanin::wire::filter_refusal_max);
  return 0;
}
