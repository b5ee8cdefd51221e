/// \file
/// verbs://host:port: messages between hosts by RDMA (InfiniBand, RoCE, iWARP): ibverbs, with the
/// RDMA connection manager for addresses. The device reads messages where they lie in the sender's
/// pool and writes them into pages of the receiver's, past both kernels and processors.
#pragma once

#include <memory>

#include "fanin/base/result.hpp"
#include "fanin/net/rdma/provider.hpp"

namespace fanin::net::verbs {

/// For an RdmaTransport; only where fanin was built with libibverbs and librdmacm
/// (FANIN_HAVE_VERBS). An address without a host is the first one of this host that has a device.
/// Errors: unsupported (no RDMA on this host: what to load), exhausted.
[[nodiscard]] Result<std::unique_ptr<rdma::Provider>> make_provider();

} // namespace fanin::net::verbs
