#include "fanin/executive/this_host.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>
#include <memory>
#include <numeric>
#include <set>
#include <string_view>
#include <system_error>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "fanin/base/counted.hpp"
#include "fanin/base/number.hpp"
#include "fanin/base/try.hpp"
#include "fanin/executive/application_node.hpp"
#include "fanin/executive/filter_node.hpp"
#include "fanin/executive/placement.hpp"
#include "fanin/executive/plugin_call.hpp"
#include "fanin/executive/plugins.hpp"
#include "fanin/net/own_addresses.hpp"
#include "fanin/net/stream/tcp_streams.hpp"
#include "fanin/storage/run_numbers.hpp"

namespace fanin::executive {
namespace {

std::string host_name() {
  std::array<char, 256> name{};
  if (gethostname(name.data(), name.size() - 1) != 0) return {};
  return name.data();
}

std::string_view short_name(std::string_view name) { return name.substr(0, name.find('.')); }

std::optional<std::size_t> number_of(const char* variable) {
  const char* text = std::getenv(variable);
  if (text == nullptr) return std::nullopt;
  return parse_number<std::size_t>(text);
}

std::string process_names(const config::Configuration& configuration) {
  std::vector<std::string> names;
  for (const auto& process : configuration.processes) names.push_back(process.name);
  return fmt::format("{}", fmt::join(names, ", "));
}

Result<std::vector<std::size_t>> process_named(const config::Configuration& configuration,
                                               const std::string& name) {
  for (std::size_t i = 0; i < configuration.processes.size(); ++i) {
    if (configuration.processes[i].name == name) return std::vector{i};
  }
  if (const auto node = configuration.find_node(name)) {
    for (std::size_t i = 0; i < configuration.processes.size(); ++i) {
      if (std::ranges::count(configuration.processes[i].nodes, *node) > 0) return std::vector{i};
    }
  }
  const auto& left_out = configuration.readouts_left_out;
  if (std::ranges::find(left_out, name) != left_out.end())
    return fail(ErrorKind::usage, fmt::format("{}: --node: \"{}\" takes no part: this run is "
                                              "without all of its sources",
                                              configuration.file, name));
  return fail(ErrorKind::usage, fmt::format("{}: --node: there is no node \"{}\"; there are: {}",
                                            configuration.file, name, configuration.node_names()));
}

// Processors and memory, of each node and of all that run here.
Result<> check_resources(const config::Configuration& configuration,
                         const std::vector<std::size_t>& nodes,
                         const std::vector<NodePlan>& plans) {
  std::uint64_t all = 0;
  for (const std::size_t index : nodes) {
    const config::Node& node = configuration.nodes[index];
    if (auto may = check_cpus(node.cpus); !may)
      return std::unexpected(configuration.wrong(node.key + ".cpu", may.error().text));
    const memory::ArenaOptions options{.numa_node = node.numa_node,
                                       .huge_pages = configuration.buffers.huge_pages};
    if (auto enough = memory::check_arena(plans[index].total(), options); !enough) {
      const std::string causes[] = {node.key, "buffers"};
      return std::unexpected(configuration.wrong(node.key, enough.error().text, causes));
    }
    all += plans[index].total();
  }
  const auto enough = memory::check_arena(all, {.huge_pages = configuration.buffers.huge_pages});
  if (enough) return {};
  const std::string causes[] = {"buffers", "readout", "builder"};
  return std::unexpected(configuration.wrong(
      "buffers",
      fmt::format("those of all {} nodes of this host: {}; lower buffers.readout or "
                  "buffers.builder",
                  nodes.size(), enough.error().text),
      causes));
}

// The transports of a loop that never runs: nobody listens or connects.
class UnusedTransports {
public:
  explicit UnusedTransports(const net::TransportRegistry& registry) : registry_(registry) {}

  // Errors: usage.
  [[nodiscard]] Result<net::TransportFactory> factory_of(const net::Url& url) const {
    net::TransportFactory factory = registry_.find(url.scheme);
    if (factory) return factory;
    return fail(ErrorKind::usage, fmt::format("there is no transport for {}://; there are: {}",
                                              url.scheme, fmt::join(registry_.schemes(), ", ")));
  }
  // Errors: those of the factory.
  [[nodiscard]] Result<const net::Transport*> make(const net::Url& url) {
    std::unique_ptr<net::Transport>& transport = transports_[url.scheme];
    if (transport) return transport.get();
    const auto factory = FANIN_TRY(factory_of(url));
    const PluginCall call(fmt::format("{}: making its transport", url.text()));
    transport = FANIN_TRY(factory(loop_, [](LogLevel, std::string_view) {}));
    return transport.get();
  }

private:
  const net::TransportRegistry& registry_;
  MonotonicClock clock_;
  net::Loop loop_{clock_};
  std::map<std::string, std::unique_ptr<net::Transport>> transports_;
};

// Each process makes the transports of all nodes, listens at the addresses of its own ones, and
// connects to the event manager. A host that has none of the nodes cannot judge more than schemes.
Result<> check_addresses(const config::Configuration& configuration,
                         const std::vector<std::size_t>& nodes,
                         const net::TransportRegistry& registry) {
  UnusedTransports transports(registry);
  const auto check = [&](const net::Url& url, bool used) -> Result<> {
    if (nodes.empty()) {
      const auto known = transports.factory_of(url);
      return known ? Result<>{} : std::unexpected(known.error());
    }
    const auto transport = FANIN_TRY(transports.make(url));
    return used ? transport->check_address(url) : Result<>{};
  };
  for (std::size_t i = 0; i < configuration.nodes.size(); ++i) {
    const config::Node& node = configuration.nodes[i];
    const bool used = i == 0 || std::ranges::find(nodes, i) != nodes.end();
    for (const net::Url& url : node.urls) {
      auto good = check(url, used);
      const bool listens = std::ranges::find(nodes, i) != nodes.end();
      if (good && listens && url.reach() == net::Reach::network && !url.host.empty()) {
        if (const auto found = net::resolve(url, true); !found)
          good = std::unexpected(found.error());
      }
      if (good) continue;
      return std::unexpected(configuration.wrong(node.url_key, good.error().text));
    }
    for (const auto& [key, url] : {std::pair{node.key + ".filter_url", node.filter_url},
                                   std::pair{node.key + ".monitoring_url", node.monitoring_url}}) {
      if (!url) continue;
      if (const auto good = check(*url, used && !url->host.empty()); !good)
        return std::unexpected(configuration.wrong(key, good.error().text));
    }
  }
  return {};
}

// That run files can be made there, without making anything yet.
Result<> check_output(const config::Configuration& configuration) {
  const config::Run& run = configuration.run;
  namespace fs = std::filesystem;
  std::error_code error;
  fs::path there = fs::absolute(run.output, error); // so much of it as there is
  while (!fs::exists(fs::status(there, error)) && there.has_relative_path()) {
    there = there.parent_path();
  }
  const auto refuse = [&](std::string_view why) {
    return std::unexpected(configuration.wrong(
        "run.output", fmt::format("folder {} cannot be {}: {}: {}", run.output,
                                  there == fs::absolute(run.output, error) ? "written" : "made",
                                  there.string(), why)));
  };
  if (!fs::is_directory(there, error)) return refuse("not a folder");
  if (access(there.c_str(), W_OK | X_OK) != 0) return refuse(std::strerror(errno));
  return {};
}

Result<> check_run_number(const config::Configuration& configuration) {
  const config::Run& run = configuration.run;
  if (run.id) return {};
  const auto next = storage::RunNumbers({run.output}).next(run.number);
  if (next) return {};
  const bool taken = next.error().kind == ErrorKind::usage;
  return std::unexpected(
      configuration.wrong(taken ? "run.number" : "run.output", next.error().text));
}

} // namespace

bool is_here(const std::string& host) {
  if (host.empty() || host == "localhost" || host == "::1" || host.starts_with("127.")) return true;
  const std::string own = host_name();
  if (host == own || (host.find('.') == std::string::npos && host == short_name(own)) ||
      (own.find('.') == std::string::npos && short_name(host) == own)) {
    return true;
  }
  return std::ranges::any_of(net::own_addresses(), [&host](const net::OwnAddress& one) {
    return one.address.host() == host;
  });
}

Result<std::vector<std::size_t>> processes_here(const config::Configuration& configuration,
                                                const std::string& name) {
  if (!name.empty()) return process_named(configuration, name);
  const auto task = number_of("SLURM_PROCID");
  const auto tasks = number_of("SLURM_STEP_NUM_TASKS");
  if (task && tasks && *tasks > 1) {
    if (*task >= configuration.processes.size() || *tasks != configuration.processes.size()) {
      return fail(ErrorKind::usage,
                  fmt::format("{}: Slurm started {} tasks for {} ({}): srun -n {}",
                              configuration.file, *tasks,
                              counted(configuration.processes.size(), "process", "processes"),
                              process_names(configuration), configuration.processes.size()));
    }
    return std::vector{*task};
  }
  std::vector<std::size_t> here;
  std::set<std::string> hosts;
  for (std::size_t i = 0; i < configuration.processes.size(); ++i) {
    const config::Node& node = configuration.nodes[configuration.processes[i].nodes.front()];
    hosts.insert(node.host);
    if (is_here(node.host)) here.push_back(i);
  }
  if (!here.empty()) return here;
  return fail(ErrorKind::usage,
              fmt::format("{}: none of its nodes runs on this host, {}: its hosts are {}; --node "
                          "NAME starts one anyway",
                          configuration.file, host_name(), fmt::join(hosts, ", ")));
}

Result<std::vector<std::size_t>> processes_elsewhere(const config::Configuration& configuration,
                                                     const std::string& name) {
  if (!name.empty()) return process_named(configuration, name);
  std::vector<std::size_t> all(configuration.processes.size());
  std::iota(all.begin(), all.end(), 0U);
  return all;
}

Result<std::vector<NodePlan>> check_here(const config::Configuration& configuration,
                                         const std::vector<std::size_t>& nodes) {
  const auto plugins = FANIN_TRY(Plugins::load(configuration));
  for (const config::Node& node : configuration.nodes) {
    if (node.role == config::Role::application && plugins.applications.find(node.type) == nullptr) {
      return std::unexpected(unknown_application(configuration, node));
    }
  }
  FANIN_TRY(check_addresses(configuration, nodes, plugins.transports));
  auto plans = plan_memory(configuration, plugins.transports);
  if (!plans) return plans;
  FANIN_TRY(check_resources(configuration, nodes, *plans));
  const auto has = [&](config::Role role) {
    return std::ranges::any_of(
        nodes, [&](std::size_t node) { return configuration.nodes[node].role == role; });
  };
  const bool numbers = has(config::Role::event_manager);
  const bool writes = numbers || has(config::Role::builder);
  if (writes && !configuration.run.output.empty()) {
    FANIN_TRY(check_output(configuration));
    if (numbers) FANIN_TRY(check_run_number(configuration));
  }
  if (writes && !configuration.sink.type.empty()) {
    const source::SourceSettings settings = sink_settings(configuration);
    const PluginCall call(settings, "sink");
    if (const auto made = plugins.sinks.find(settings); !made)
      return fail(ErrorKind::usage, made.error().text);
  }
  for (const std::size_t node : nodes) {
    if (configuration.nodes[node].role != config::Role::filter) continue;
    const auto settings = filter_settings(configuration, node, {});
    const PluginCall call(settings.settings, "filter");
    const auto made = plugins.filters.make(settings);
    if (!made) return fail(ErrorKind::usage, made.error().text);
  }
  net::TcpStreams streams;
  for (const config::Source& source : configuration.sources) {
    if (std::ranges::find(nodes, configuration.readout_node(source.readout)) == nodes.end())
      continue;
    const PluginCall call(source.settings, "source");
    source::SourceSettings settings = source.settings;
    settings.streams = &streams;
    const auto made = plugins.sources.make(settings);
    if (made) continue;
    if (made.error().kind == ErrorKind::usage) return std::unexpected(made.error());
    // The file that a source reads is a part of the configuration.
    return fail(ErrorKind::usage, fmt::format("{}: {}: {}", source.settings.place.text(),
                                              source.settings.key, made.error().text));
  }
  return plans;
}

} // namespace fanin::executive
