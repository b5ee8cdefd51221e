// What the shared module ofi has.
#include <string>
#include <vector>

#include "fanin/base/export.hpp"
#include "fanin/net/ofi/fabric.hpp"
#include "fanin/net/ofi/ofi.hpp"
#include "fanin/net/ofi/providers.hpp"
#include "fanin/net/rdma/make_transport.hpp"
#include "fanin/net/registry.hpp"

extern "C" FANIN_INTERNAL_API void
fanin_ofi_register_transports(fanin::net::TransportRegistry& registry);

extern "C" void fanin_ofi_register_transports(fanin::net::TransportRegistry& registry) {
  using namespace fanin;
  registry.add_family(
      "ofi", [](net::Loop& loop, const LogFunction& log, std::string_view provider) {
        return net::rdma::make_transport(loop, log, net::ofi::make_provider(loop, provider));
      });
}

extern "C" void fanin_ofi_providers(std::vector<std::string>& names) {
  names = fanin::net::ofi::usable_providers();
}
