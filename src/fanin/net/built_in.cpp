// The transports that come with fanin.
#include <memory>
#include <utility>

#include "fanin/base/assert.hpp"
#include "fanin/net/fault/fault.hpp"
#include "fanin/net/inproc/inproc.hpp"
#include "fanin/net/rdma/pages.hpp"
#include "fanin/net/refused_peers.hpp"
#include "fanin/net/registry.hpp"
#include "fanin/net/shm/shm.hpp"
#include "fanin/net/tcp/tcp.hpp"
#include "fanin/net/trace/trace.hpp"
#include "fanin/net/transport_module.hpp"

namespace fanin::net {
namespace {

using MadeTransport = Result<std::unique_ptr<Transport>>;

MadeTransport make_tcp(Loop& loop, const LogFunction& log) {
  TcpOptions options;
  options.report = RefusedPeers(loop, log);
  return std::make_unique<TcpTransport>(loop, std::move(options));
}

MadeTransport make_shm(Loop& loop, const LogFunction& log) {
  ShmOptions options;
  options.report = RefusedPeers(loop, log);
  return std::make_unique<ShmTransport>(loop, std::move(options));
}

MadeTransport make_inproc(Loop&, const LogFunction&) { return std::make_unique<InprocTransport>(); }

std::unique_ptr<Transport> add_fault(Loop& loop, const LogFunction&,
                                     std::unique_ptr<Transport> below) {
  return std::make_unique<FaultTransport>(loop, std::move(below));
}

std::unique_ptr<Transport> add_trace(Loop& loop, const LogFunction& log,
                                     std::unique_ptr<Transport> below) {
  return std::make_unique<TraceTransport>(loop, std::move(below), log);
}

} // namespace

// One line a transport: whoever adds one adds it here.
void add_built_in_transports(TransportRegistry& registry) {
  const struct {
    const char* scheme;
    TransportFactory make;
    TransportTraits traits = {};
  } table[] = {{"tcp", make_tcp},
               {"shm", make_shm, {.shares_memory = true}},
               {"verbs",
                from_module("verbs", "libibverbs1 and librdmacm1", "verbs"),
                {.pages = rdma::pages_with_sharing}},
               {"inproc", make_inproc}};
  for (const auto& row : table) {
    const auto added = registry.add(row.scheme, row.make, row.traits);
    FANIN_ASSERT(added.has_value());
  }
  registry.add_family("ofi", family_from_module("ofi", "libfabric1, 1.17 or later"),
                      {.pages = rdma::pages_without_sharing});
  registry.add_decorator("fault", add_fault);
  registry.add_decorator("trace", add_trace);
}

} // namespace fanin::net
