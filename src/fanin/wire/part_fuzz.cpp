// Whatever is in a data message: no read past the end, and a decoded part is inside its message.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "fanin/base/assert.hpp"
#include "fanin/wire/part.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::vector<std::byte> message(size); // exactly as long, so that a sanitizer sees a read past it
  if (size != 0) std::memcpy(message.data(), data, size);
  const auto part = fanin::wire::decode_part(message);
  if (!part) return 0;
  const auto& header = part->header;
  FANIN_ASSERT(part->table.size() == header.entries && !part->table.empty());
  FANIN_ASSERT(part->payload.size() == header.payload_size);
  FANIN_ASSERT(header.events().first >= header.batch().first);
  FANIN_ASSERT(header.events().end <= header.batch().end);
  std::uint64_t total = 0;
  for (const auto& entry : part->table) total += entry.size();
  FANIN_ASSERT(part->partial() || total == part->payload.size());
  return 0;
}
