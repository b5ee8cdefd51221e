// An RdmaTransport above a provider that may not be there.
#pragma once

#include <memory>
#include <utility>

#include "fanin/base/try.hpp"
#include "fanin/net/rdma/rdma.hpp"
#include "fanin/net/refused_peers.hpp"

namespace fanin::net::rdma {

[[nodiscard]] inline Result<std::unique_ptr<Transport>>
make_transport(Loop& loop, const LogFunction& log, Result<std::unique_ptr<Provider>> provider) {
  auto made = FANIN_TRY(std::move(provider));
  RdmaOptions options;
  options.report = RefusedPeers(loop, log);
  return std::make_unique<RdmaTransport>(loop, std::move(made), std::move(options));
}

} // namespace fanin::net::rdma
