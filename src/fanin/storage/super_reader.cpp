#include "fanin/storage/super_reader.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "fanin/base/counted.hpp"

namespace fanin::storage {

namespace {
SuperFault fault_of(std::span<const std::byte> head, std::size_t members) {
  const wire::SuperHeader expected;
  wire::SuperHeader header;
  if (head.size() < sizeof header) return {};
  std::memcpy(&header, head.data(), sizeof header);
  const bool other_count = header.magic == expected.magic && header.version == expected.version &&
                           header.count != members;
  return other_count ? SuperFault{SuperFault::What::count, header.count, members} : SuperFault{};
}
} // namespace

std::string text_of(const SuperFault& fault, const wire::Slice& slice) {
  constexpr const char* merged = "see \"merged\" of this source, and slice.source of its group";
  switch (fault.what) {
  case SuperFault::What::bytes: break;
  case SuperFault::What::count:
    return fmt::format("merges {} where the source merges {}: {}", counted(fault.came, "source"),
                       fault.expected, merged);
  case SuperFault::What::source:
    return fmt::format("merges source {:#x} where the source merges {:#x}: {}", fault.came,
                       fault.expected, merged);
  case SuperFault::What::event:
    return fmt::format("is of the detector's event {}, not {}: see slice.number = {}, slice.of = "
                       "{} and slice.block = {} here, and event.batch_events and the order of "
                       "slice.urls of its group",
                       fault.came, fault.expected, slice.number, slice.of, slice.block);
  case SuperFault::What::run:
    return fmt::format("is of run {}, and here run {} is built: give both the same `run.number`",
                       fault.came, fault.expected);
  }
  return "is not a super-fragment: see what its sender sends";
}

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

std::expected<wire::SuperHead, SuperFault>
SuperReader::read(std::span<const SourcePiece* const> pieces, std::uint64_t index,
                  std::uint64_t from, std::span<const SourceInfo> members) {
  const SourcePiece& piece = *pieces.front();
  const wire::FragmentEntry entry = entry_at(piece, index);
  const std::uint64_t size = entry.size();
  const auto read = std::min(wire::super_head_size(members.size()), size);
  const auto bytes = gather(pieces, from, read);
  const wire::SuperHead head(bytes, size, members.size());
  if (!head.good()) return std::unexpected(fault_of(bytes, members.size()));
  const RunNumber run = head.header().run;
  const bool damaged =
      (entry.flags() & wire::fragment_bad_checksum) != 0; // maybe the number itself
  if (run != run_ && run != 0 && run_ != 0 && !damaged)
    return std::unexpected(SuperFault{SuperFault::What::run, run, run_});
  const EventNumber came = head.header().event;
  const EventNumber expected = slice_.detector_number(piece.range.first + index);
  if (came != expected) return std::unexpected(SuperFault{SuperFault::What::event, came, expected});
  for (std::size_t k = 0; k < members.size(); ++k) {
    const SourceId source = head.entry(k).source;
    if (source == members[k].id) continue;
    return std::unexpected(SuperFault{SuperFault::What::source, source, members[k].id});
  }
  return head;
}

} // namespace fanin::storage
