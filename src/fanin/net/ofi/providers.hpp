// What libfabric can be used with on this host.
#pragma once

#include <string>
#include <vector>

#include "fanin/base/export.hpp"
#include "fanin/base/result.hpp"

namespace fanin::net {

// The providers that ofi+PROVIDER:// reaches. Errors: unsupported: there is no libfabric here.
[[nodiscard]] FANIN_INTERNAL_API Result<std::vector<std::string>> ofi_providers();

} // namespace fanin::net

// In the shared module fanin_ofi.so.
extern "C" FANIN_INTERNAL_API void fanin_ofi_providers(std::vector<std::string>& names);
