/// \file
/// The rows of a run file on disk: little-endian, fixed offsets.
/// docs/modules/storage.md has them as a table, for readers in other languages.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>
#include <variant>
#include <vector>

#include "fanin/base/identity.hpp"
#include "fanin/wire/fragment.hpp"

namespace fanin::storage {

/// The attribute `format` of each file. Its number rises with every change of what is in a file.
inline constexpr const char* run_file_format = "fanin run file, version 1";

/// Flags of an event; 0: complete and good.
enum EventFlag : std::uint32_t {
  event_incomplete = 1U << 0, ///< a required source is missing
  event_bad_checksum = 1U << 1, ///< a fragment's CRC32C differs
  event_bad_number = 1U << 2, ///< a source's own event number disagrees
  event_truncated = 1U << 3, ///< the front end cut a fragment short
  event_rejected = 1U << 4, ///< the filter accepted it into no stream: it has no fragments here
  event_in_doubt = 1U << 5 ///< a source began to count again in mid-run: its fragment may belong to
                           ///< another event
};

/// Flags of a fragment; the same bits as those of events.
using FragmentRowFlags = std::uint16_t;

/// /events: one row for each event. The row is the commit: what it points to was written before.
struct EventRow {
  std::uint64_t event = 0;
  std::uint64_t first_fragment = 0; ///< row in /fragments; the rows of an event are consecutive
  std::uint64_t first_missing = 0; ///< row in /missing
  std::uint64_t size = 0; ///< bytes of payload of all fragments
  std::uint32_t fragment_count = 0;
  std::uint32_t missing_count = 0;
  std::uint32_t flags = 0; ///< EventFlag
  std::uint32_t incarnation = 0; ///< of the builder unit that wrote it
  std::uint16_t attempt = 0;
  std::uint16_t node = 0; ///< of the builder unit that wrote it
  std::uint32_t streams = 0; ///< with filter units: a bit for each stream that it is in, as in
                             ///< /streams; error_stream
  std::int64_t time_unix_ns = 0; ///< UTC; of its batch: when the event manager cut it
};
static_assert(sizeof(EventRow) == 64 && std::is_trivially_copyable_v<EventRow>);

/// /fragments: one row for each fragment, ascending by source within an event.
struct FragmentRow {
  std::uint64_t event = 0;
  std::uint64_t offset = 0; ///< into /bytes
  std::uint32_t source = 0;
  std::uint32_t size = 0; ///< bytes
  std::uint32_t crc32c = 0; ///< as the source computed it; 0 where integrity is "none"
  FragmentRowFlags flags = 0;
  std::uint16_t attempt = 0;
};
static_assert(sizeof(FragmentRow) == 32 && std::is_trivially_copyable_v<FragmentRow>);

/// /missing: one row for each source that is missing in an event, required or optional, ascending
/// by source.
struct MissingRow {
  std::uint64_t event = 0;
  std::uint32_t source = 0;
  std::uint32_t reason = 0; ///< wire::MissingReason
};
static_assert(sizeof(MissingRow) == 16 && std::is_trivially_copyable_v<MissingRow>);

/// /gaps: event numbers [first, end) that no source has. They are not events.
struct GapRow {
  std::uint64_t first = 0;
  std::uint64_t end = 0;
};
static_assert(sizeof(GapRow) == 16 && std::is_trivially_copyable_v<GapRow>);

/// /sources: one row for each source of the run, ascending by id. The required sources decide which
/// events are complete.
struct SourceInfo {
  SourceId id = 0;
  std::string name; ///< at most 255 bytes are kept
  std::string readout_unit; ///< at most 255 bytes are kept
  bool required = true;
};

/// A source whose fragments are super-fragments (wire/super_fragment.hpp). Files have their members
/// instead.
struct MergedSource {
  SourceId source = 0;
  std::vector<SourceInfo> members; ///< ascending by id
};

/// What an experiment wants to say about a run, under a name of its own: the attribute
/// "metadata.KEY" of each file.
inline constexpr const char* metadata_prefix = "metadata.";
struct Metadata {
  std::string key;
  std::variant<bool, std::int64_t, double, std::string> value;
};

/// A stream of accepted events. Its bit in EventRow::streams is its index in /streams.
struct StreamInfo {
  std::string name; ///< at most 255 bytes are kept
  std::uint32_t prescale = 1; ///< N: of N events that the filter accepts into it, one is kept
  std::vector<SourceId> sources; ///< whose fragments it has, ascending; empty: of all
};

/// /stream_sources: for each stream that does not have all sources, a row for each of its sources.
struct StreamSourceRow {
  std::uint32_t stream = 0; ///< index in /streams
  std::uint32_t source = 0;
};
static_assert(sizeof(StreamSourceRow) == 8);

inline constexpr std::size_t streams_max = 31;
/// The bit of events that no filter unit could decide.
inline constexpr std::uint32_t error_stream = 1U << 31;
/// The source id of the results of filters (Decision::set_result()); it is not in /sources.
inline constexpr SourceId filter_source = 0xffffffff;

/// Whether an event in these streams has the fragments of a source.
[[nodiscard]] inline bool carries(const std::vector<StreamInfo>& known, std::uint32_t streams,
                                  SourceId source) {
  if ((streams & error_stream) != 0) return true;
  for (std::size_t i = 0; i < known.size(); ++i) {
    if ((streams >> i & 1U) == 0) continue;
    const auto& sources = known[i].sources;
    if (sources.empty() || std::ranges::binary_search(sources, source)) return true;
  }
  return false;
}

[[nodiscard]] constexpr FragmentRowFlags fragment_row_flags(std::uint32_t wire_flags) {
  unsigned flags = 0;
  if ((wire_flags & wire::fragment_bad_checksum) != 0) flags |= event_bad_checksum;
  if ((wire_flags & wire::fragment_bad_number) != 0) flags |= event_bad_number;
  if ((wire_flags & wire::fragment_truncated) != 0) flags |= event_truncated;
  if ((wire_flags & wire::fragment_in_doubt) != 0) flags |= event_in_doubt;
  return static_cast<FragmentRowFlags>(flags);
}

/// The flags of wire::FragmentFlag for flags of a row.
[[nodiscard]] constexpr std::uint32_t wire_fragment_flags(FragmentRowFlags row_flags) {
  std::uint32_t flags = 0;
  if ((row_flags & event_bad_checksum) != 0) flags |= wire::fragment_bad_checksum;
  if ((row_flags & event_bad_number) != 0) flags |= wire::fragment_bad_number;
  if ((row_flags & event_truncated) != 0) flags |= wire::fragment_truncated;
  if ((row_flags & event_in_doubt) != 0) flags |= wire::fragment_in_doubt;
  return flags;
}

} // namespace fanin::storage
