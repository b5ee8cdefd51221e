// The bare loops over libfabric are in a shared module, so that the command is not linked to it.
#include "fanin/base/shared_module.hpp"
#include "fanin/bench/bare_fabric.hpp"

namespace fanin::bench {
namespace {

Result<BareFabric> bare_fabric() {
  const auto module = SharedModule::open("bench_ofi");
  if (!module) return std::unexpected(module.error());
  const auto fill = module->function<void(BareFabric&)>("fanin_bare_fabric");
  if (!fill) return std::unexpected(fill.error());
  BareFabric loops;
  (*fill)(loops);
  return loops;
}

} // namespace

Result<Ends> bare_fabric_stream(const Spec& spec) {
  const auto loops = bare_fabric();
  if (!loops) return std::unexpected(loops.error());
  return loops->stream(spec);
}

Result<Ends> bare_fabric_roundtrip(const Spec& spec) {
  const auto loops = bare_fabric();
  if (!loops) return std::unexpected(loops.error());
  return loops->roundtrip(spec);
}

} // namespace fanin::bench
