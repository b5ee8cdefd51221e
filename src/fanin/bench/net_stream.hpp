// The rungs of the ladder between the bare loop and the event builder: the same pages through a
// Transport and a Loop, then the same payload as data blocks, cut from fragment queues. N senders,
// M receivers, a process each. `spec.page`: bytes of one message, about.
#pragma once

#include <cstdint>

#include "fanin/bench/ends.hpp"
#include "fanin/bench/spec.hpp"

namespace fanin::bench {

// Pages of records, each one message: what the transport costs.
[[nodiscard]] Ends page_stream_ends(const Spec& spec);
// Data blocks of emulated sources, without an event manager: what the source and the framing cost.
// `source_page`: of the sources' pools; `batch_events`: fragments in one message, at most.
[[nodiscard]] Ends block_stream_ends(const Spec& spec, std::uint32_t source_page,
                                     std::uint32_t batch_events);

} // namespace fanin::bench
