// What the shared module fanin_verbs.so has.
#include "fanin/base/assert.hpp"
#include "fanin/net/rdma/make_transport.hpp"
#include "fanin/net/transport_module.hpp"
#include "fanin/net/verbs/verbs.hpp"

extern "C" void fanin_register_transports(fanin::net::TransportRegistry& registry) {
  using namespace fanin;
  const auto added = registry.add("verbs", [](net::Loop& loop, const LogFunction& log) {
    return net::rdma::make_transport(loop, log, net::verbs::make_provider());
  });
  FANIN_ASSERT(added.has_value());
}
