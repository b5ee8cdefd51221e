/// \file
/// verbs://host:port: messages between hosts by RDMA (InfiniBand, RoCE, iWARP): ibverbs, with the
/// RDMA connection manager for addresses. The network reads messages where they lie in the sender's
/// pool and writes them into pages of the receiver's, past both kernels and processors.
#pragma once

#include <memory>

#include "fanin/base/result.hpp"
#include "fanin/net/posted/network.hpp"

namespace fanin::net::verbs {

/// For a PostedTransport; only where fanin was built with libibverbs and librdmacm
/// (FANIN_HAVE_VERBS). An address without a host is the first one of this host that has a device.
/// Errors: unsupported (no RDMA on this host: what to load), exhausted.
[[nodiscard]] Result<std::unique_ptr<posted::Network>> make_network();

} // namespace fanin::net::verbs
