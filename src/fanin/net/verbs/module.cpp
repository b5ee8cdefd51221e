// What the shared module verbs has.
#include "fanin/base/assert.hpp"
#include "fanin/base/export.hpp"
#include "fanin/net/rdma/make_transport.hpp"
#include "fanin/net/registry.hpp"
#include "fanin/net/verbs/verbs.hpp"

extern "C" FANIN_INTERNAL_API void
fanin_verbs_register_transports(fanin::net::TransportRegistry& registry);

extern "C" void fanin_verbs_register_transports(fanin::net::TransportRegistry& registry) {
  using namespace fanin;
  const auto added = registry.add("verbs", [](net::Loop& loop, const LogFunction& log) {
    return net::rdma::make_transport(loop, log, net::verbs::make_provider());
  });
  FANIN_ASSERT(added.has_value());
}
