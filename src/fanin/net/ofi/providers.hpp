// What libfabric can be used with on this host.
#pragma once

#include <string>
#include <vector>

#include "fanin/base/result.hpp"

namespace fanin::net {

// The providers that ofi+PROVIDER:// reaches. Errors: unsupported: there is no libfabric here.
[[nodiscard]] Result<std::vector<std::string>> ofi_providers();

} // namespace fanin::net

// In the shared module fanin_ofi.so.
extern "C" void fanin_ofi_providers(std::vector<std::string>& names);
