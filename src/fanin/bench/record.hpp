// What a bare loop moves: pages of records, each a size and a checksum, then the payload: what an
// emulated source would have made, with the checksum of the readout unit; or a copy (payload.hpp).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "fanin/base/export.hpp"
#include "fanin/base/identity.hpp"
#include "fanin/bench/payload.hpp"

namespace fanin::bench {

struct RecordHeader {
  std::uint32_t size = 0;
  std::uint32_t crc32c = 0; // 0 without checksums
};
static_assert(sizeof(RecordHeader) == 8);

struct PageLayout {
  // At least one record, and as many as fit into `page_size`.
  PageLayout(std::uint32_t payload, std::uint64_t page_size)
      : size(payload), records(static_cast<std::uint32_t>(page_size / record())) {
    if (records == 0) records = 1;
  }
  [[nodiscard]] std::uint64_t record() const { return sizeof(RecordHeader) + size; }
  [[nodiscard]] std::uint64_t page() const { return records * record(); }

  std::uint32_t size;
  std::uint32_t records;
};

// `page` is layout.page() bytes; the records are of consecutive events from `first` on.
void fill_records(std::span<std::byte> page, const PageLayout& layout, EventNumber first,
                  SourceId source, bool checksum);
FANIN_INTERNAL_API void copy_records(std::span<std::byte> page, const PageLayout& layout,
                                     const PayloadSource& source);
// How many records there are. Touches their headers and first bytes, with `read` or `checksum`
// every byte. 0: damaged.
[[nodiscard]] FANIN_INTERNAL_API std::uint32_t walk_records(std::span<const std::byte> page,
                                                            bool checksum, bool read = false);

} // namespace fanin::bench
