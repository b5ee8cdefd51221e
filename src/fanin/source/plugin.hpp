// How a shared object adds types of source, transports and applications. It defines two functions:
//
//   #include <fanin/source/plugin.hpp>
//   FANIN_PLUGIN_ABI
//   extern "C" void fanin_register(fanin::source::PluginRegistry& registry) {
//     registry.add_source("pulse", make_pulse_source);
//   }
//
// docs/plugins.md leads through it; examples/plugin-source is a whole one.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "fanin/base/result.hpp"
#include "fanin/net/registry.hpp"
#include "fanin/source/registry.hpp"

namespace fanin::executive {
class ApplicationRegistry; // fanin/executive/application.hpp, with add_application()
}

namespace fanin::source {

// Changes whenever a plug-in has to be compiled again: layouts in Source, FragmentQueue, PagePool,
// Registry, PluginRegistry. A plug-in built for another number is refused.
inline constexpr int plugin_abi = 1;

// What a plug-in can register with. A null pointer: not in this program.
struct PluginRegistry {
  std::uint32_t size = sizeof(PluginRegistry); // of the structure that the program knows
  Registry* sources = nullptr;
  net::TransportRegistry* transports = nullptr;
  executive::ApplicationRegistry* applications = nullptr;
  Result<> result; // the first registration that failed; load_plugin reports it

  void add_source(std::string type, SourceFactory factory) {
    keep(sources->add(std::move(type), std::move(factory)));
  }
  void add_transport(std::string scheme, net::TransportFactory factory) {
    if (transports == nullptr) return;
    keep(transports->add(std::move(scheme), std::move(factory)));
  }
  void keep(Result<> added) {
    if (!added && result) result = std::move(added);
  }
};

// Opens the shared object and lets it register. It stays open until the process ends, for its code
// is in use until then. Errors: not_found (with the linker's reason), unsupported (another ABI, or
// no plug-in of fanin), usage (a name that is taken).
[[nodiscard]] Result<> load_plugin(const std::string& path, PluginRegistry& registry);
[[nodiscard]] Result<> load_plugin(const std::string& path, Registry& registry);

} // namespace fanin::source

#define FANIN_PLUGIN_ABI                                                                           \
  extern "C" int fanin_plugin_abi();                                                               \
  extern "C" int fanin_plugin_abi() { return fanin::source::plugin_abi; }

extern "C" void fanin_register(fanin::source::PluginRegistry& registry);
