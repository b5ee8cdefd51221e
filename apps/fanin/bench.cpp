// fanin bench: measures fanin beside bare loops and other libraries, in the same run.
#include "bench.hpp"

#include <string_view>
#include <utility>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "commands.hpp"
#include "fanin/base/number.hpp"
#include "fanin/base/try.hpp"
#include "fanin/base/units.hpp"
#include "fanin/bench/machine.hpp"
#include "fanin/bench/spec.hpp"
#include "fanin/builder/lane.hpp"
#include "fanin/net/tcp_socket.hpp"
#include "terminal.hpp"

namespace fanin::command {

void add_bench_options(CLI::App& command, BenchArguments& arguments) {
  command.add_option("--duration", arguments.duration, "Length of one measurement, as 2s");
  command.add_option("--runs", arguments.runs, "Measurements of each contender, in turns")
      ->check(CLI::Range(1, 1000));
  command
      .add_option("--wait", arguments.wait,
                  "poll (default where there are enough cores, and not with --idle) or block")
      ->check(CLI::IsMember({"poll", "block"}));
  command.add_option("--congestion", arguments.congestion,
                     "TCP congestion control of all connections; default: the host's. With "
                     "another one zeromq and mpi are left out");
  command
      .add_option("--stolen-max", arguments.stolen_max,
                  "Percent of a round's time that other machines may take; a round above it is "
                  "dropped, counted and run again (5)")
      ->check(CLI::Range(0.0, 100.0));
  command.add_option("--json", arguments.json, "File for the result; - is standard output");
  command.add_option("--plot", arguments.plot, "File for a drawing of the result, SVG");
  command.add_flag("-q,--quiet", arguments.quiet, "No progress");
}

void add_host_options(CLI::App& command, BenchArguments& arguments) {
  const auto processes = CLI::Range(std::size_t{1}, bench::processes_max);
  command.add_option("--rus", arguments.senders, "Readout units, or senders")->check(processes);
  command.add_option("--bus", arguments.receivers, "Builder units, or receivers")->check(processes);
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

namespace {

// --nodes into the two numbers. Errors: usage.
Result<> read_nodes(BenchArguments& arguments) {
  if (arguments.nodes.empty()) return {};
  const auto number = [](std::string_view text) {
    const std::size_t value = parse_number<std::size_t>(text).value_or(0);
    return value <= bench::processes_max ? value : 0;
  };
  const std::string_view nodes = arguments.nodes;
  const auto x = nodes.find('x');
  arguments.senders = number(nodes.substr(0, x));
  arguments.receivers = x == std::string_view::npos ? 0 : number(nodes.substr(x + 1));
  if (arguments.senders > 0 && arguments.receivers > 0) return {};
  return fail(ErrorKind::usage,
              fmt::format("--nodes: \"{}\" is not NxM with 1 to {} of each, as 4x4",
                          arguments.nodes, bench::processes_max));
}

} // namespace

Result<std::shared_ptr<const executive::HostList>> read_hosts(BenchArguments& arguments) {
  FANIN_TRY(read_nodes(arguments));
  const auto [senders, receivers] = std::pair{arguments.senders, arguments.receivers};
  if (arguments.full_duplex && (senders != receivers || senders < 2))
    return fail(ErrorKind::usage,
                "--full-duplex: needs as many readout as builder units, two at least: --nodes 2x2");
  if (arguments.hosts.empty() && !arguments.testbed) {
    if (!arguments.full_duplex) return nullptr;
    return fail(ErrorKind::usage, "--full-duplex: needs hosts: give --testbed or --hosts LIST");
  }
  auto list = FANIN_TRY(arguments.testbed ? executive::testbed_hosts()
                                          : executive::load_hosts(arguments.hosts));
  const std::size_t needed = 1 + senders + receivers;
  if (list.hosts.size() < needed)
    return std::unexpected(
        executive::too_few_hosts(list, needed, fmt::format("{}x{}", senders, receivers)));
  for (std::size_t i = 0; i < needed; ++i) {
    const executive::Host& host = list.hosts[i];
    if (host.addresses.size() >= arguments.rails) continue;
    return fail(ErrorKind::usage,
                fmt::format("--rails: {}: {} has fewer addresses than {}: {}", host.place,
                            host.name(), arguments.rails,
                            list.testbed
                                ? fmt::format("./dev testbed down, then ./dev testbed up {}x{} "
                                              "--rails {}",
                                              senders, receivers, arguments.rails)
                                : std::string("add them after commas")));
  }
  return std::make_shared<const executive::HostList>(std::move(list));
}

std::string share_congestion(net::Url& url, const BenchArguments& arguments,
                             const executive::HostList* hosts, Reading& reading) {
  std::string name = arguments.congestion;
  const auto written = url.options.find("congestion");
  if (written != url.options.end()) {
    if (name.empty()) name = written->second;
    if (name != written->second)
      reading.fail_with("--congestion",
                        fmt::format("is {}, and that of --url is {}", name, written->second));
  }
  if (name.empty() && hosts != nullptr) name = hosts->congestion;
  if (name.empty()) name = bench::host_congestion();
  if (url.scheme != "tcp") return name;
  reading.keep("--congestion", net::check_congestion(name));
  url.options.try_emplace("congestion", name);
  return name;
}

void read_rounds(const BenchArguments& arguments, Duration& duration, bench::RoundOptions& rounds,
                 Reading& reading) {
  if (const auto time = parse_duration(arguments.duration); reading.keep("--duration", time))
    duration = *time;
  if (duration < shortest_sample)
    reading.fail_with("--duration", fmt::format("{} at least", format_duration(shortest_sample)));
  rounds.runs = arguments.runs;
  rounds.stolen_max = arguments.stolen_max / 100;
}

bench::Progress progress_of(const BenchArguments& arguments) {
  if (arguments.quiet) return {};
  return [](std::string_view line) { say(fmt::format("{}\n", line)); };
}

void add_bench(CLI::App& app, int& status) {
  CLI::App* bench =
      app.add_subcommand("bench", "Measure, beside bare loops and other libraries in the same run");
  bench->require_subcommand(1);
  add_message_benches(*bench, status);
  add_evb(*bench, status);
}

} // namespace fanin::command
