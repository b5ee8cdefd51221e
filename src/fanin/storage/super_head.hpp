// The head of a super-fragment (wire/super_fragment.hpp) of a built event. It is the same whether
// the event is forwarded to a slice or published.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "fanin/base/identity.hpp"
#include "fanin/storage/batch_events.hpp"
#include "fanin/storage/layout.hpp"

namespace fanin::storage {

// Appends header and table of an event of `run`; the payloads of its fragments follow, in order.
void append_super_head(RunNumber run, const BuiltEvent& event, std::vector<std::byte>& out);
// `fragments` and `missing` are those of `row`, ascending by source.
void append_super_head(RunNumber run, const EventRow& row, std::span<const FragmentRow> fragments,
                       std::span<const MissingRow> missing, std::vector<std::byte>& out);

} // namespace fanin::storage
