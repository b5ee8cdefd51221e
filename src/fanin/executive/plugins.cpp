#include "fanin/executive/plugins.hpp"

#include <fmt/format.h>

#include "fanin/executive/plugin.hpp"
#include "fanin/executive/plugin_call.hpp"

namespace fanin::executive {

Result<Plugins> Plugins::load(const config::Configuration& configuration) {
  Plugins plugins;
  net::add_built_in_transports(plugins.transports);
  source::add_built_in_sources(plugins.sources);
  PluginRegistry registry{plugins.sources, plugins.transports, plugins.applications,
                          plugins.filters, plugins.sinks};
  for (std::size_t i = 0; i < configuration.plugins.size(); ++i) {
    const std::string key = fmt::format("plugin.{}.path", i);
    const std::string& path = configuration.plugins[i];
    const PluginCall call(configuration.wrong(key, fmt::format("loading plug-in {}", path)).text);
    if (auto loaded = load_plugin(path, registry); !loaded)
      return std::unexpected(configuration.wrong(key, loaded.error().text));
  }
  return plugins;
}

} // namespace fanin::executive
