#include "fanin/bench/peer_modules.hpp"

#include "fanin/base/shared_module.hpp"
#include "fanin/base/try.hpp"
#include "fanin/bench/contender_ends.hpp"

namespace fanin::bench {
namespace {

Result<Ends> ends_of_module(std::string_view module, const char* function, const Spec& spec) {
  const auto opened = FANIN_TRY(SharedModule::open(module));
  const auto make = FANIN_TRY(opened.function<decltype(fanin_zeromq)>(function));
  Result<Ends> ends;
  make(spec, ends);
  return ends;
}

} // namespace

Result<Ends> bare_fabric_ends(const Spec& spec) {
  return ends_of_module("bench_ofi", "fanin_bare_fabric", spec);
}

Result<Ends> zeromq_ends(const Spec& spec) {
  auto ends = ends_of_module("bench_zmq", "fanin_zeromq", spec);
  if (ends) return ends;
  return fail(ErrorKind::unsupported,
              "zeromq: install libzmq3-dev and build again: " + ends.error().text);
}

} // namespace fanin::bench
