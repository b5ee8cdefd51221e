// Whatever is in a super-fragment: no read past its head, and all fragments lie in it.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "fanin/base/assert.hpp"
#include "fanin/wire/super_fragment.hpp"

// The first two bytes say how many sources there are.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::uint16_t sources = 0;
  if (size < sizeof sources) return 0;
  std::memcpy(&sources, data, sizeof sources);
  std::vector<std::byte> bytes(size - sizeof sources); // exactly as long, for a sanitizer
  if (!bytes.empty()) std::memcpy(bytes.data(), data + sizeof sources, bytes.size());
  const fanin::wire::SuperHead head(bytes, bytes.size(), sources);
  if (!head.good()) return 0;
  std::uint64_t end = fanin::wire::super_head_size(sources);
  for (std::size_t i = 0; i < head.header().count; ++i) end += head.entry(i).entry.size();
  FANIN_ASSERT(end == bytes.size());
  return 0;
}
