// The baselines: what sockets give without a library. N processes fill pages of records and write
// them to M processes in turn, which read and walk them; with pubsub, each page to all of them.
#pragma once

#include "fanin/bench/ends.hpp"
#include "fanin/bench/spec.hpp"

namespace fanin::bench {

// With nxn a record is what a source makes of an event, else a copy (payload.hpp).
[[nodiscard]] Ends bare_tcp_ends(const Spec& spec);

} // namespace fanin::bench
