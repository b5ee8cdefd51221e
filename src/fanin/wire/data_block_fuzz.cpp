// Whatever is in a data message: no read past the end, and a decoded block is inside its message.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "fanin/base/assert.hpp"
#include "fanin/wire/data_block.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::vector<std::byte> message(size); // exactly as long, so that a sanitizer sees a read past it
  if (size != 0) std::memcpy(message.data(), data, size);
  const auto block = fanin::wire::decode_data_block(message);
  if (!block) return 0;
  const auto& header = block->header;
  FANIN_ASSERT(block->table.size() == header.entries && !block->table.empty());
  FANIN_ASSERT(block->payload.size() == header.payload_size);
  FANIN_ASSERT(header.events().first >= header.batch().first);
  FANIN_ASSERT(header.events().end <= header.batch().end);
  std::uint64_t total = 0;
  for (const auto& entry : block->table) total += entry.size();
  FANIN_ASSERT(block->partial() || total == block->payload.size());
  return 0;
}
