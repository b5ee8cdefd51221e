#include "fanin/executive/plugins.hpp"

#include <chrono>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "fanin/executive/plugin.hpp"
#include "fanin/net/inproc/inproc.hpp"
#include "fanin/net/tcp/tcp.hpp"

namespace fanin::executive {
namespace {

using MadeTransport = Result<std::unique_ptr<net::Transport>>;

constexpr Duration strangers_period = std::chrono::seconds{1};
constexpr std::uint64_t strangers_said = 3; // in a period; a port scan would fill the log

// Connections by who is no node of a run; those that were not said are counted in the next line.
class StrangerLog {
public:
  StrangerLog(net::Loop& loop, LogFunction log) : loop_(loop), log_(std::move(log)) {}

  void operator()(net::CloseReason reason, std::string_view text) {
    const bool strange = reason == net::CloseReason::protocol_violation ||
                         reason == net::CloseReason::version_mismatch ||
                         reason == net::CloseReason::message_too_large;
    if (!strange) return log_(LogLevel::debug, text);
    if (loop_.now() >= period_end_) {
      period_end_ = loop_.now() + strangers_period;
      said_ = 0;
    }
    if (said_ == strangers_said) {
      ++left_out_;
      return;
    }
    ++said_;
    const std::uint64_t before = std::exchange(left_out_, 0);
    log_(LogLevel::warning,
         before == 0 ? std::string(text)
                     : fmt::format("{} (and {} such lines were left out before)", text, before));
  }

private:
  net::Loop& loop_;
  LogFunction log_;
  Time period_end_{};
  std::uint64_t said_ = 0;
  std::uint64_t left_out_ = 0;
};

MadeTransport make_tcp(net::Loop& loop, const LogFunction& log) {
  net::TcpOptions options;
  options.report = StrangerLog(loop, log);
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
  PluginRegistry registry{plugins.sources, plugins.transports, plugins.applications};
  for (std::size_t i = 0; i < configuration.plugins.size(); ++i) {
    const config::Plugin& plugin = configuration.plugins[i];
    if (auto loaded = load_plugin(plugin.path, registry); !loaded) {
      return fail(ErrorKind::usage, fmt::format("{}: plugin.{}.path: {}", plugin.place.text(), i,
                                                loaded.error().text));
    }
  }
  return plugins;
}

} // namespace fanin::executive
