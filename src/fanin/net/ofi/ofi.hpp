/// \file
/// ofi+PROVIDER://host:port (ofi+tcp, ofi+verbs, ofi+shm): messages over libfabric, with whatever
/// network its providers reach: over reliable connected endpoints (FI_EP_MSG), addressed by IP, and
/// where a provider has none, over reliable datagrams (rdm.hpp).
#pragma once

#include <memory>
#include <string_view>

#include "fanin/base/result.hpp"
#include "fanin/net/loop.hpp"
#include "fanin/net/rdma/provider.hpp"

namespace fanin::net::ofi {

/// For an RdmaTransport of that loop; only where fanin was built with libfabric (FANIN_HAVE_OFI).
/// Errors: unsupported, with the providers there are.
[[nodiscard]] Result<std::unique_ptr<rdma::Provider>> make_provider(Loop& loop,
                                                                    std::string_view provider);

} // namespace fanin::net::ofi
