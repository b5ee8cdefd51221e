#include "fanin/storage/super_head.hpp"

#include <cstdint>

#include "fanin/wire/super_fragment.hpp"

namespace fanin::storage {
namespace {

std::uint32_t payload_size(const FragmentRow& fragment) { return fragment.size; }
std::uint32_t payload_size(const EventFragment& fragment) {
  return static_cast<std::uint32_t>(fragment.payload.size());
}

void append(const void* data, std::size_t size, std::vector<std::byte>& out) {
  const auto* const bytes = static_cast<const std::byte*>(data);
  out.insert(out.end(), bytes, bytes + size);
}

template <class Fragment>
void append_head(RunNumber run, EventNumber event, std::uint32_t event_flags,
                 std::span<const Fragment> fragments, std::span<const MissingRow> missing,
                 std::vector<std::byte>& out) {
  const std::size_t count = fragments.size() + missing.size();
  wire::SuperHeader header{.event = event, .count = static_cast<std::uint32_t>(count), .run = run};
  if ((event_flags & event_incomplete) != 0) header.flags = wire::super_incomplete;
  append(&header, sizeof header, out);
  for (std::size_t f = 0, m = 0; f + m < count;) {
    const bool present =
        m == missing.size() || (f < fragments.size() && fragments[f].source < missing[m].source);
    wire::SuperEntry entry;
    if (present) {
      const Fragment& fragment = fragments[f++];
      entry = {fragment.source,
               {payload_size(fragment) | wire_fragment_flags(fragment.flags), fragment.crc32c}};
    } else {
      entry = {missing[m].source, {wire::fragment_absent, missing[m].reason}};
      ++m;
    }
    append(&entry, sizeof entry, out);
  }
}

} // namespace

void append_super_head(RunNumber run, const BuiltEvent& event, std::vector<std::byte>& out) {
  append_head(run, event.number, event.flags, event.fragments, event.missing, out);
}

void append_super_head(RunNumber run, const EventRow& row, std::span<const FragmentRow> fragments,
                       std::span<const MissingRow> missing, std::vector<std::byte>& out) {
  append_head(run, row.event, row.flags, fragments, missing, out);
}

} // namespace fanin::storage
