#include "fanin/storage/super_reader.hpp"

#include <algorithm>

namespace fanin::storage {

std::span<const std::byte> SuperReader::gather(std::span<const SourcePiece* const> pieces,
                                               std::uint64_t from, std::size_t size) {
  const auto& first = pieces.front()->payload;
  if (from + size <= first.size) return {first.data() + from, size};
  head_.clear();
  for (const SourcePiece* const piece : pieces) {
    const auto& part = piece->payload;
    const auto more = std::min<std::uint64_t>(size - head_.size(), part.size - from);
    head_.insert(head_.end(), part.data() + from, part.data() + from + more);
    from = 0;
    if (head_.size() == size) break;
  }
  return head_;
}

std::optional<wire::SuperHead> SuperReader::read(std::span<const SourcePiece* const> pieces,
                                                 std::uint64_t index, std::uint64_t from,
                                                 std::span<const SourceInfo> members) {
  const SourcePiece& piece = *pieces.front();
  const std::uint64_t size = entry_at(piece, index).size();
  const auto read = std::min(wire::super_head_size(members.size()), size);
  const wire::SuperHead head(gather(pieces, from, read), size, members.size());
  if (!head.good() || head.header().event != slice_.detector_number(piece.range.first + index)) {
    return std::nullopt;
  }
  for (std::size_t k = 0; k < members.size(); ++k) {
    if (head.entry(k).source != members[k].id) return std::nullopt;
  }
  return head;
}

} // namespace fanin::storage
