#include "fanin/wire/data_block.hpp"

#include <cstring>

#include "fanin/wire/checksum.hpp"

namespace fanin::wire {

namespace {

std::uint32_t part_checksum(std::span<const std::byte> header_and_table) {
  DataBlockHeader header;
  std::memcpy(&header, header_and_table.data(), sizeof header);
  header.checksum = 0;
  const auto bytes = std::as_bytes(std::span{&header, 1});
  const std::uint32_t crc = crc32c(header_and_table.subspan(sizeof header), crc32c(bytes));
  return crc == 0 ? 1 : crc; // 0 means that there is none
}

} // namespace

void seal_data_block(std::span<std::byte> header_and_table, bool checksum) {
  const std::uint32_t crc = checksum ? part_checksum(header_and_table) : 0;
  std::memcpy(header_and_table.data() + offsetof(DataBlockHeader, checksum), &crc, sizeof crc);
}

Result<DataBlockView> decode_data_block(std::span<const std::byte> message,
                                        std::span<const std::byte> rest) {
  DataBlockView block;
  DataBlockHeader& header = block.header;
  if (message.size() < sizeof header)
    return fail(ErrorKind::malformed, "data message shorter than its header");
  std::memcpy(&header, message.data(), sizeof header);
  if (header.magic != data_block_magic)
    return fail(ErrorKind::malformed, "not a data message: wrong magic");
  if (header.fills_carrier > 1)
    return fail(ErrorKind::malformed, "data message with reserved bits set");

  const std::uint64_t table_bytes = std::uint64_t{header.entries} * sizeof(FragmentEntry);
  const std::uint64_t head_bytes = sizeof header + table_bytes;
  const bool whole = rest.empty()
                         ? head_bytes + header.payload_size == message.size()
                         : head_bytes == message.size() && header.payload_size == rest.size();
  if (header.entries == 0 || !whole) {
    return fail(ErrorKind::malformed, "data message with inconsistent lengths");
  }
  // In a batch that ends below 2^64 this is more than its size too where an event comes before it.
  const EventNumber at = header.first_event - header.batch_first;
  if (header.batch_first + header.batch_events < header.batch_first || at > header.batch_events ||
      header.entries > header.batch_events - at) {
    return fail(ErrorKind::malformed, "data message with events outside its batch");
  }
  const auto* table = message.data() + sizeof header;
  if (reinterpret_cast<std::uintptr_t>(table) % alignof(FragmentEntry) != 0) {
    return fail(ErrorKind::malformed, "data message that is not aligned");
  }
  block.table = {reinterpret_cast<const FragmentEntry*>(table), header.entries};
  block.payload = rest.empty() ? message.subspan(head_bytes) : rest;
  if (header.checksum != 0 && header.checksum != part_checksum(message.first(head_bytes))) {
    return fail(ErrorKind::malformed, "data message with a damaged header or table");
  }

  std::uint64_t total = 0;
  for (const FragmentEntry& entry : block.table) {
    if (entry.absent() && entry.size() != 0) {
      return fail(ErrorKind::malformed, "data message with an absent fragment that has a size");
    }
    total += entry.size();
  }
  block.partial_ = total != header.payload_size || header.payload_offset != 0;
  if (block.partial() && (header.entries != 1 || header.payload_size == 0 ||
                          std::uint64_t{header.payload_offset} + header.payload_size > total)) {
    return fail(ErrorKind::malformed, "data message with inconsistent fragment sizes");
  }
  return block;
}

} // namespace fanin::wire
