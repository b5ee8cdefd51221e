// The baselines over libfabric: what FI_EP_MSG of the same provider gives without a library. Two
// endpoints, a window of buffers at each, and fi_cq_read in a circle.
#pragma once

#include "fanin/base/result.hpp"
#include "fanin/bench/ends.hpp"
#include "fanin/bench/spec.hpp"

namespace fanin::bench {

// Over ofi+PROVIDER. Small messages travel together in pages of spec.page bytes, large ones in
// pieces of that. Errors: unsupported, where fanin was built without libfabric or the provider has
// datagrams only.
[[nodiscard]] Result<Ends> bare_fabric_stream(const Spec& spec);
// One transfer for each message, whatever its size.
[[nodiscard]] Result<Ends> bare_fabric_roundtrip(const Spec& spec);

} // namespace fanin::bench
