// ofi+PROVIDER://host:port (ofi+tcp, ofi+verbs): messages over libfabric, with whatever network its
// providers reach: reliable connected endpoints (FI_EP_MSG), addressed by IP.
#pragma once

#include <memory>
#include <string_view>

#include "fanin/base/result.hpp"
#include "fanin/net/posted/network.hpp"

namespace fanin::net::ofi {

// For a PostedTransport; only where fanin was built with libfabric (FANIN_HAVE_OFI). Errors:
// unsupported, with the providers there are.
[[nodiscard]] Result<std::unique_ptr<posted::Network>> make_network(std::string_view provider);

} // namespace fanin::net::ofi
