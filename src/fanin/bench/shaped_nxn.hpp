// nxn with traffic shaping: N senders to M receivers, in the order and with the grants of event
// building (builder/shaping), over data connections of its own. What event building under the same
// shaping can reach at most. A message is a carrier, filled with records (record.hpp).
#pragma once

#include "fanin/base/result.hpp"
#include "fanin/bench/ends.hpp"
#include "fanin/bench/spec.hpp"

namespace fanin::bench {

// `spec.shaping` is on. Errors: usage: a record is larger than a carrier; unsupported: no such
// transport here, or all in one process.
[[nodiscard]] Result<Ends> shaped_nxn_ends(const Spec& spec);

} // namespace fanin::bench
