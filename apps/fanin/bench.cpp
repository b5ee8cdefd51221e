// fanin bench: measures fanin beside bare loops and other libraries, in the same run.
#include "bench.hpp"

#include <charconv>
#include <string_view>
#include <utility>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "commands.hpp"
#include "fanin/bench/machine.hpp"
#include "fanin/bench/spec.hpp"
#include "fanin/builder/lane.hpp"

namespace fanin::command {

void add_host_options(CLI::App& command, HostArguments& arguments) {
  command.add_option("--nodes", arguments.nodes, "NxM: as --rus N --bus M");
  auto* hosts = command.add_option(
      "--hosts", arguments.hosts,
      "List of hosts: an event manager, N and M; a process on each, in this order");
  command.add_flag("--testbed", arguments.testbed, "The same on the hosts of ./dev testbed")
      ->excludes(hosts);
  command
      .add_option("--rails", arguments.rails,
                  "Networks of each host, used at the same time; also measured over one of them")
      ->check(CLI::Range(std::size_t{1}, builder::rails_max));
  command.add_flag("--full-duplex", arguments.full_duplex,
                   "On other hosts: also measured with one of the N and one of the M on each host");
}

Result<> read_nodes(const HostArguments& arguments, std::size_t& senders, std::size_t& receivers) {
  if (arguments.nodes.empty()) return {};
  const auto number = [](std::string_view text) {
    std::size_t value = 0;
    const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    const bool good = error == std::errc{} && stop == text.data() + text.size();
    return good && value <= bench::processes_max ? value : 0;
  };
  const std::string_view nodes = arguments.nodes;
  const auto x = nodes.find('x');
  senders = number(nodes.substr(0, x));
  receivers = x == std::string_view::npos ? 0 : number(nodes.substr(x + 1));
  if (senders > 0 && receivers > 0) return {};
  return fail(ErrorKind::usage,
              fmt::format("--nodes: \"{}\" is not NxM with 1 to {} of each, as 4x4",
                          arguments.nodes, bench::processes_max));
}

Result<std::shared_ptr<const executive::HostList>>
read_host_list(const HostArguments& arguments, std::size_t senders, std::size_t receivers) {
  if (arguments.full_duplex && (senders != receivers || senders < 2))
    return fail(ErrorKind::usage,
                "--full-duplex: needs as many readout as builder units, two at least: --nodes 2x2");
  if (arguments.hosts.empty() && !arguments.testbed) {
    if (!arguments.full_duplex) return nullptr;
    return fail(ErrorKind::usage, "--full-duplex: needs hosts: give --testbed or --hosts LIST");
  }
  auto list =
      arguments.testbed ? executive::testbed_hosts() : executive::load_hosts(arguments.hosts);
  if (!list) return std::unexpected(list.error());
  const std::size_t needed = 1 + senders + receivers;
  if (list->hosts.size() < needed)
    return std::unexpected(
        executive::too_few_hosts(*list, needed, fmt::format("{}x{}", senders, receivers)));
  for (std::size_t i = 0; i < needed; ++i) {
    const executive::Host& host = list->hosts[i];
    if (host.addresses.size() >= arguments.rails) continue;
    return fail(ErrorKind::usage,
                fmt::format("--rails: {}: {} has fewer addresses than {}: {}", host.place,
                            host.name(), arguments.rails,
                            list->testbed
                                ? fmt::format("./dev testbed down, then ./dev testbed up {}x{} "
                                              "--rails {}",
                                              senders, receivers, arguments.rails)
                                : std::string("add them after commas")));
  }
  return std::make_shared<const executive::HostList>(std::move(*list));
}

std::string share_congestion(net::Url& url, const std::string& asked,
                             const executive::HostList* hosts, Reading& reading) {
  std::string name = asked;
  const auto written = url.options.find("congestion");
  if (written != url.options.end()) {
    if (name.empty()) name = written->second;
    if (name != written->second)
      reading.fail_with("--congestion",
                        fmt::format("is {}, and that of --url is {}", asked, written->second));
  }
  if (name.empty() && hosts != nullptr) name = hosts->congestion;
  if (name.empty()) name = bench::host_congestion();
  if (url.scheme != "tcp") return name;
  reading.congestion(name);
  url.options.try_emplace("congestion", name);
  return name;
}

void add_stolen_option(CLI::App& command, double& percent) {
  command
      .add_option("--stolen-max", percent,
                  "Percent of a round's time that other machines may take; a round above it is "
                  "dropped, counted and run again (5)")
      ->check(CLI::Range(0.0, 100.0));
}

void add_bench(CLI::App& app, int& status) {
  CLI::App* bench =
      app.add_subcommand("bench", "Measure, beside bare loops and other libraries in the same run");
  bench->require_subcommand(1);
  add_message_benches(*bench, status);
  add_evb(*bench, status);
}

} // namespace fanin::command
