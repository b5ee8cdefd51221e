// Finds payloads in the extents of a RowBuilder that was started at the first byte.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <sys/uio.h>

#include "fanin/wire/checksum.hpp"

namespace fanin::storage::detail {

// Thread: one. Keeps its memory from batch to batch.
class ExtentIndex {
public:
  // `extents` must stay while parts are asked for.
  void read(std::span<const iovec> extents) {
    extents_ = extents;
    ends_.clear();
    std::uint64_t end = 0;
    for (const iovec& extent : extents) ends_.push_back(end += extent.iov_len);
  }

  // Calls use(part) for the parts, in order, of the `size` bytes that begin at `offset`. There are
  // several where they came in several messages; none if `size` is 0.
  template <class Use>
  void each_part(std::uint64_t offset, std::uint64_t size, Use use) const {
    auto at = static_cast<std::size_t>(std::ranges::upper_bound(ends_, offset) - ends_.begin());
    for (const std::uint64_t end = offset + size; offset < end; ++at) {
      const iovec& extent = extents_[at];
      const std::uint64_t part_end = std::min(end, ends_[at]);
      const std::uint64_t begin = ends_[at] - extent.iov_len;
      use(std::span{static_cast<const std::byte*>(extent.iov_base) + (offset - begin),
                    static_cast<std::size_t>(part_end - offset)});
      offset = part_end;
    }
  }

  [[nodiscard]] std::uint32_t crc32c(std::uint64_t offset, std::uint64_t size) const {
    std::uint32_t crc = 0;
    each_part(offset, size,
              [&](std::span<const std::byte> part) { crc = wire::crc32c(part, crc); });
    return crc;
  }

private:
  std::span<const iovec> extents_;
  std::vector<std::uint64_t> ends_; // of each extent, in /bytes
};

} // namespace fanin::storage::detail
