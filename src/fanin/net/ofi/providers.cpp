#include "fanin/net/ofi/providers.hpp"

#include "fanin/base/shared_module.hpp"
#include "fanin/base/try.hpp"

namespace fanin::net {

Result<std::vector<std::string>> ofi_providers() {
  const auto module = FANIN_TRY(SharedModule::open("ofi"));
  const auto list =
      FANIN_TRY(module.function<void(std::vector<std::string>&)>("fanin_ofi_providers"));
  std::vector<std::string> names;
  list(names);
  return names;
}

} // namespace fanin::net
