// fanin bench stream, roundtrip, pubsub, nxn: fanin's sockets beside bare loops, ZeroMQ and MPI.
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <memory>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "bench.hpp"
#include "commands.hpp"
#include "fanin/base/try.hpp"
#include "fanin/base/units.hpp"
#include "fanin/bench/bodies.hpp"
#include "fanin/bench/machine.hpp"
#include "fanin/bench/message_bench.hpp"
#include "reading.hpp"
#include "terminal.hpp"

namespace fanin::command {
namespace {

using bench::Pattern;

constexpr const char* sizes_default = "64B,1KiB,4KiB,16KiB,64KiB,256KiB,1MiB";

struct Arguments : BenchArguments {
  Pattern pattern = Pattern::stream;
  std::string listen;
  std::string peers;
  std::size_t pipeline = 1;
  bool read = false;
  bool under_load = false;
};

std::vector<std::string> read_peers(Reading& reading, const Arguments& arguments) {
  if (arguments.peers == "none") return {};
  std::vector<std::string> known{"raw"};
  if (arguments.pattern == Pattern::stream) known.insert(known.end(), {"memcpy", "zeromq", "mpi"});
  if (arguments.pattern == Pattern::roundtrip) known.insert(known.end(), {"zeromq", "mpi"});
  if (arguments.pattern == Pattern::pubsub) known.emplace_back("zeromq");
  if (arguments.pattern == Pattern::nxn) known.emplace_back("fair");
  if (arguments.peers.empty()) return known;
  auto peers = split_at_commas(arguments.peers);
  for (const auto& peer : peers) {
    if (std::ranges::find(known, peer) == known.end()) {
      reading.fail_with("--peers",
                        fmt::format("there is no '{}': {}, or none", peer, fmt::join(known, ", ")));
    }
  }
  return peers;
}

Result<bench::MessageBenchOptions> read_options(Arguments arguments) {
  Reading reading;
  bench::MessageBenchOptions options;
  options.hosts = FANIN_TRY(read_hosts(arguments));
  if (arguments.full_duplex)
    options.full_duplex = std::make_shared<const executive::HostList>(
        bench::with_both_on_each(*options.hosts, arguments.senders));
  bench::Spec& spec = options.spec;
  spec.pattern = arguments.pattern;
  spec.url = reading.url("--url", arguments.url);
  if (spec.url.port != 0) { // somebody listens there
    options.other_host = spec.url;
    if (spec.url.scheme != "tcp") reading.fail_with("--url", "across two hosts: tcp only");
    spec.url.port = 0;
    spec.url.host.clear();
  }
  if (options.hosts && (options.other_host || spec.url.scheme != "tcp"))
    reading.fail_with("--url", "on a list of hosts: tcp, without a port");
  spec.congestion = share_congestion(spec.url, arguments, options.hosts.get(), reading);
  options.sizes =
      reading.sizes("--sizes", arguments.sizes.empty() ? sizes_default : arguments.sizes,
                    bench::message_size_max);
  options.peers = read_peers(reading, arguments);
  read_rounds(arguments, options.window.duration, options.rounds, reading);
  options.under_load = arguments.under_load;
  spec.senders = arguments.senders;
  spec.receivers = arguments.receivers;
  spec.rails = arguments.rails;
  spec.pipeline = arguments.pipeline;
  spec.read = arguments.read;
  if (const auto policy = builder::shaping::policy_named(arguments.shaping)) {
    spec.shaping.policy = *policy;
  } else {
    reading.fail_with("--shaping",
                      fmt::format("there is no '{}': {}", arguments.shaping, shapings));
  }
  reading.rate("--rate", arguments.rate, spec.period);
  spec.wait = arguments.wait == "poll" ? net::WaitPolicy::poll : net::WaitPolicy::block;
  FANIN_TRY(reading.result());
  return options;
}

Result<int> listen(const Arguments& arguments, const bench::Progress& progress) {
  const auto url = FANIN_TRY(net::Url::parse(arguments.listen));
  // There is nothing to be taken down: what it has started ends with it.
  std::signal(SIGINT, [](int) { _exit(status_done); });
  std::signal(SIGTERM, [](int) { _exit(status_done); });
  FANIN_TRY(bench::serve_ends(url, progress));
  return status_done;
}

Result<int> run(const Arguments& arguments) {
  const bench::Progress progress = progress_of(arguments);
  if (!arguments.listen.empty()) return listen(arguments, progress);
  const auto options = FANIN_TRY(read_options(arguments));
  auto json = FANIN_TRY(OutputFile::open("--json", arguments.json));
  auto plot = FANIN_TRY(OutputFile::open("--plot", arguments.plot));
  FANIN_TRY(OutputFile::check_apart({&json, &plot}));
  const auto result = FANIN_TRY(bench::bench_messages(options, progress));
  if (arguments.json != "-" && arguments.plot != "-") print(bench::message_table(result));
  FANIN_TRY(json.write_json(result));
  FANIN_TRY(plot.write(bench::plot_over_sizes(result)));
  return status_done;
}

std::shared_ptr<Arguments> add(CLI::App& bench, int& status, Pattern pattern, const char* what,
                               CLI::App*& command) {
  auto arguments = std::make_shared<Arguments>();
  arguments->pattern = pattern;
  command = bench.add_subcommand(std::string(bench::name(pattern)), what);
  auto* url =
      command->add_option("--url", arguments->url,
                          "Transport: tcp, shm, inproc; or the address at which --listen listens");
  command
      ->add_option("--listen", arguments->listen,
                   "Makes this the other host of a measurement, as tcp://0.0.0.0:7000; ^C ends")
      ->excludes(url);
  command->add_option("--size,--sizes", arguments->sizes,
                      "Size of a message: 64KiB, or 64B,1KiB, or 8B..64MiB");
  command->add_option("--peers", arguments->peers,
                      "Contenders beside fanin, as raw,zeromq; or none");
  add_bench_options(*command, *arguments);
  command->callback([arguments, &status] { status = status_of(run(*arguments)); });
  return arguments;
}

} // namespace

void add_message_benches(CLI::App& bench, int& status) {
  CLI::App* command = nullptr;
  auto arguments =
      add(bench, status, Pattern::stream, "One-way throughput, two processes", command);
  command->add_flag("--read", arguments->read, "Receivers read every byte, not only the first");

  arguments = add(bench, status, Pattern::roundtrip, "Round-trip time, two processes", command);
  command->add_option("--pipeline", arguments->pipeline, "Messages under way")
      ->check(CLI::Range(1, 65536));
  command->add_option(
      "--rate", arguments->rate,
      "Send at a fixed rate, as 10kHz; each message is timed from its intended start");
  command->add_flag("--under-load", arguments->under_load,
                    "Measure fanin again while a stream uses the same path");

  arguments = add(bench, status, Pattern::pubsub,
                  "One publisher; sum of what its subscribers receive", command);
  arguments->receivers = 4;
  command->add_option("--subscribers", arguments->receivers, "Processes that subscribe")
      ->check(CLI::Range(std::size_t{1}, bench::processes_max));

  arguments = add(
      bench, status, Pattern::nxn,
      "N senders that send to M receivers in turn; fill and checks as in event building", command);
  command->add_option("--shaping", arguments->shaping, shapings);
  add_host_options(*command, *arguments);
}

} // namespace fanin::command
