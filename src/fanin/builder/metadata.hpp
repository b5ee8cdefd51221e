// How much metadata (the headers and tables of what was sent and not cleared) a readout unit can
// keep. Pages hold batches of one builder unit only, and capacity comes back in the order of
// assignment: so the bytes of batches determine how many pages they take, with one more page at
// either end.
#pragma once

#include <algorithm>
#include <cstdint>

#include "fanin/wire/data_block.hpp"

namespace fanin::builder {

// Bytes of metadata for each source of a batch of so many events. Payload adds further pieces.
[[nodiscard]] inline std::uint64_t metadata_per_source(std::uint64_t events) {
  return sizeof(wire::DataBlockHeader) + events * sizeof(wire::FragmentEntry);
}

struct MetadataLayout {
  std::uint32_t page = 0;        // of the metadata pool
  std::uint32_t batch_events = 0;
  std::uint32_t message_max = 0; // the largest data message
  std::uint64_t builders = 0;
  std::uint64_t sources = 0;     // of this readout unit
  std::uint64_t payload = 0;     // bytes of all their pools
  std::uint32_t source_page = 0; // the smallest of them
  bool fills_carriers = false;   // CarrierFill

  [[nodiscard]] std::uint32_t head_max() const {
    return static_cast<std::uint32_t>(metadata_per_source(batch_events));
  }
  // For so many bytes of payload: a page's end and a message's end each cut a piece in two. Where
  // carriers are filled, these bytes lie in three of them with up to four blocks in each, and a
  // page's end cuts a fragment from those before and behind it.
  [[nodiscard]] std::uint64_t further_pieces(std::uint64_t bytes) const {
    const std::uint64_t least = std::min(source_page, message_max - head_max());
    const std::uint64_t pieces = fills_carriers ? 16 : 2;
    return pieces * metadata_per_source(1) * (bytes / least + 1);
  }
  // Pages for heads of so many bytes in all. A head never crosses the end of a page.
  [[nodiscard]] std::uint64_t pages(std::uint64_t bytes) const {
    const std::uint64_t used = page - head_max();
    return (bytes + used - 1) / used;
  }
  // For the largest batch; so many are kept for batches that are assigned again.
  [[nodiscard]] std::uint64_t pages_per_batch() const {
    return pages(sources * (head_max() + further_pieces(0)) + further_pieces(payload));
  }
  // For each builder unit one batch and a page begun, and one batch that is assigned again.
  [[nodiscard]] std::uint64_t pages_least() const {
    return builders * (pages_per_batch() + 1) + pages_per_batch();
  }
  // What the event manager may assign of a pool: metadata_per_source() of all batches.
  [[nodiscard]] std::uint64_t capacity(std::uint64_t pool_pages) const {
    const std::uint64_t begun = pages_per_batch() + 2 * builders + pages(further_pieces(payload));
    if (pool_pages <= begun) return 0; // then one batch for each builder unit
    return (pool_pages - begun) * (page - head_max()) / sources;
  }
};

} // namespace fanin::builder
