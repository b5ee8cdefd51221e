#include "fanin/bench/record.hpp"

#include <cstring>

#include "fanin/source/emulator.hpp"
#include "fanin/wire/checksum.hpp"

namespace fanin::bench {

void fill_records(std::span<std::byte> page, const PageLayout& layout, EventNumber first,
                  SourceId source, bool checksum) {
  std::byte* at = page.data();
  for (std::uint32_t i = 0; i < layout.records; ++i) {
    const std::span payload{at + sizeof(RecordHeader), layout.size};
    source::fill_emulated_payload(payload, first + i, source);
    const RecordHeader header{layout.size, checksum ? wire::crc32c(payload) : 0};
    std::memcpy(at, &header, sizeof header);
    at += layout.record();
  }
}

void copy_records(std::span<std::byte> page, const PageLayout& layout,
                  const PayloadSource& source) {
  std::byte* at = page.data();
  for (std::uint32_t i = 0; i < layout.records; ++i) {
    const RecordHeader header{layout.size, 0};
    std::memcpy(at, &header, sizeof header);
    source.fill(at + sizeof header);
    at += layout.record();
  }
}

std::uint32_t walk_records(std::span<const std::byte> page, bool checksum, bool read) {
  std::uint32_t records = 0;
  while (!page.empty()) {
    RecordHeader header;
    if (page.size() < sizeof header) return 0;
    std::memcpy(&header, page.data(), sizeof header);
    page = page.subspan(sizeof header);
    if (page.size() < header.size) return 0;
    if (checksum && wire::crc32c(page.first(header.size)) != header.crc32c) return 0;
    touch(page.first(header.size), read);
    page = page.subspan(header.size);
    ++records;
  }
  return records;
}

} // namespace fanin::bench
