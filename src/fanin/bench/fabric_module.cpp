// The bare loops over libfabric are in a shared module, so that the command is not linked to it.
#include "fanin/base/shared_module.hpp"
#include "fanin/base/try.hpp"
#include "fanin/bench/bare_fabric.hpp"
#include "fanin/bench/contender_ends.hpp"

namespace fanin::bench {
namespace {

Result<BareFabric> bare_fabric() {
  const auto module = FANIN_TRY(SharedModule::open("bench_ofi"));
  const auto fill = FANIN_TRY(module.function<void(BareFabric&)>("fanin_bare_fabric"));
  BareFabric loops;
  fill(loops);
  return loops;
}

} // namespace

Result<Ends> bare_fabric_stream(const Spec& spec) {
  const auto loops = FANIN_TRY(bare_fabric());
  return loops.stream(spec);
}

Result<Ends> bare_fabric_roundtrip(const Spec& spec) {
  const auto loops = FANIN_TRY(bare_fabric());
  return loops.roundtrip(spec);
}

} // namespace fanin::bench
