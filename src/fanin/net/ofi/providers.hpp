// What libfabric can be used with on this host.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace fanin::net {

// The providers that ofi+PROVIDER:// reaches; none: fanin was built without libfabric.
[[nodiscard]] std::optional<std::vector<std::string>> ofi_providers();

} // namespace fanin::net
