// The bare loops over libfabric (contender_ends.hpp) as a shared module.
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

} // namespace fanin::bench

extern "C" FANIN_INTERNAL_API void fanin_bare_fabric(fanin::bench::BareFabric& loops);
