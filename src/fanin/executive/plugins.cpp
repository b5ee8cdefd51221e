#include "fanin/executive/plugins.hpp"

#include <fmt/format.h>

#include "fanin/net/inproc/inproc.hpp"
#include "fanin/net/tcp/tcp.hpp"
#include "fanin/source/plugin.hpp"

namespace fanin::executive {
namespace {

using MadeTransport = Result<std::unique_ptr<net::Transport>>;

MadeTransport make_tcp(net::Loop& loop, const LogFunction& log) {
  net::TcpOptions options;
  options.report = [log](net::CloseReason reason, std::string_view text) {
    const bool strange = reason == net::CloseReason::protocol_violation ||
                         reason == net::CloseReason::version_mismatch ||
                         reason == net::CloseReason::message_too_large;
    log(strange ? LogLevel::warning : LogLevel::debug, text);
  };
  return std::make_unique<net::TcpTransport>(loop, std::move(options));
}

MadeTransport make_inproc(net::Loop&, const LogFunction&) {
  return std::make_unique<net::InprocTransport>();
}

// One line a transport: whoever adds one adds it here.
Result<> add_built_in_transports(net::TransportRegistry& registry) {
  const std::pair<const char*, net::TransportFactory> table[] = {{"tcp", make_tcp},
                                                                 {"inproc", make_inproc}};
  for (const auto& [scheme, factory] : table) {
    if (auto added = registry.add(scheme, factory); !added) return added;
  }
  return {};
}

} // namespace

Result<Plugins> Plugins::load(const config::Configuration& configuration) {
  Plugins plugins;
  if (auto added = add_built_in_transports(plugins.transports); !added) {
    return std::unexpected(added.error());
  }
  source::add_built_in_sources(plugins.sources);
  source::PluginRegistry registry;
  registry.sources = &plugins.sources;
  registry.transports = &plugins.transports;
  registry.applications = &plugins.applications;
  for (const config::Plugin& plugin : configuration.plugins) {
    if (auto loaded = source::load_plugin(plugin.path, registry); !loaded) {
      return fail(ErrorKind::usage,
                  fmt::format("{}: {}", plugin.place.text(), loaded.error().text));
    }
  }
  return plugins;
}

} // namespace fanin::executive
