#include "fanin/net/ofi/providers.hpp"

#if FANIN_HAVE_OFI
#include "fanin/net/ofi/fabric.hpp"
#endif

namespace fanin::net {

std::optional<std::vector<std::string>> ofi_providers() {
#if FANIN_HAVE_OFI
  return ofi::usable_providers();
#else
  return std::nullopt;
#endif
}

} // namespace fanin::net
