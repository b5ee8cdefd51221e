#include "fanin/net/ofi/providers.hpp"

#include "fanin/base/shared_module.hpp"

namespace fanin::net {

Result<std::vector<std::string>> ofi_providers() {
  const auto module = SharedModule::open("ofi");
  if (!module) return std::unexpected(module.error());
  const auto list = module->function<void(std::vector<std::string>&)>("fanin_ofi_providers");
  if (!list) return std::unexpected(list.error());
  std::vector<std::string> names;
  (*list)(names);
  return names;
}

} // namespace fanin::net
