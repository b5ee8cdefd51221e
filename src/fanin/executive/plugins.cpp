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
    const config::Plugin& plugin = configuration.plugins[i];
    const PluginCall call(
        fmt::format("{}: plugin.{}.path: loading plug-in {}", plugin.place.text(), i, plugin.path));
    if (auto loaded = load_plugin(plugin.path, registry); !loaded) {
      return fail(ErrorKind::usage, fmt::format("{}: plugin.{}.path: {}", plugin.place.text(), i,
                                                loaded.error().text));
    }
  }
  return plugins;
}

} // namespace fanin::executive
