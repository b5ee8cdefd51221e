// The baselines over libfabric: what FI_EP_MSG of the same provider gives without a library. Two
// endpoints, a window of buffers at each, and fi_cq_read in a loop.
#pragma once

#include "fanin/base/export.hpp"
#include "fanin/base/result.hpp"
#include "fanin/bench/ends.hpp"
#include "fanin/bench/spec.hpp"

namespace fanin::bench {

// The functions of the shared module fanin_bench_ofi.so, which is linked to libfabric.
struct BareFabric {
  // Small messages travel together in pages of spec.page bytes, large ones in pieces of that.
  Result<Ends> (*stream)(const Spec& spec) = nullptr;
  // One transfer for each message, whatever its size.
  Result<Ends> (*roundtrip)(const Spec& spec) = nullptr;
};

// Over ofi+PROVIDER. Errors: unsupported, where there is no libfabric or the provider has datagrams
// only.
[[nodiscard]] Result<Ends> bare_fabric_stream(const Spec& spec);
[[nodiscard]] Result<Ends> bare_fabric_roundtrip(const Spec& spec);

} // namespace fanin::bench

extern "C" FANIN_INTERNAL_API void fanin_bare_fabric(fanin::bench::BareFabric& loops);
