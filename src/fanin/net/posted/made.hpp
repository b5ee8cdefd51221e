// A posted transport over a network that may not be there.
#pragma once

#include <memory>
#include <utility>

#include "fanin/net/posted/posted.hpp"
#include "fanin/net/refused_peers.hpp"

namespace fanin::net::posted {

[[nodiscard]] inline Result<std::unique_ptr<Transport>>
make_transport(Loop& loop, const LogFunction& log, Result<std::unique_ptr<Network>> network) {
  if (!network) return std::unexpected(network.error());
  PostedOptions options;
  options.report = RefusedPeers(loop, log);
  return std::make_unique<PostedTransport>(loop, std::move(*network), std::move(options));
}

} // namespace fanin::net::posted
