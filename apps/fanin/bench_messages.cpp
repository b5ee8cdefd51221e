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
#include "fanin/base/units.hpp"
#include "fanin/bench/machine.hpp"
#include "fanin/bench/message_bench.hpp"
#include "fanin/bench/remote.hpp"
#include "reading.hpp"
#include "terminal.hpp"

namespace fanin::command {
namespace {

using bench::Pattern;

constexpr Duration shortest_sample = std::chrono::milliseconds{50}; // of a measurement
constexpr const char* shapings = "none, random, linear-shift, barrel-shifter or tokens";
constexpr const char* sizes_default = "64B,1KiB,4KiB,16KiB,64KiB,256KiB,1MiB";

// As the user wrote them; empty: the default.
struct Words {
  HostWords hosts; // of nxn
  Pattern pattern = Pattern::stream;
  std::string url = "tcp";
  std::string listen;
  std::string sizes;
  std::string peers;
  std::string duration = "1s";
  std::size_t runs = 3;
  std::string wait = "poll";
  std::string congestion; // empty: the host's, or the testbed's
  double stolen_max = 5; // percent
  std::size_t senders = 1;
  std::size_t receivers = 1;
  std::size_t pipeline = 1;
  std::string shaping = "none";
  std::string rate;
  std::string json;
  std::string plot;
  bool read = false;
  bool under_load = false;
  bool quiet = false;
};

std::vector<std::string> split(std::string_view text) {
  std::vector<std::string> parts;
  while (true) {
    const auto end = text.find(',');
    parts.emplace_back(text.substr(0, end));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

// "64KiB", "64B,1KiB" or "8B..64MiB": the ends and the powers of 4 between them.
std::vector<std::uint32_t> read_sizes(Reading& reading, const std::string& text) {
  std::vector<std::uint32_t> sizes;
  const auto one = [&](std::string_view word) {
    std::uint32_t size = 0;
    reading.size("--sizes", std::string(word), size);
    if (size == 0 || size > bench::message_size_max)
      reading.fail_with("--sizes", fmt::format("\"{}\": from 1B to {}", word,
                                               format_size(bench::message_size_max)));
    return size;
  };
  for (const auto& word : split(text)) {
    const auto dots = word.find("..");
    sizes.push_back(one(word.substr(0, dots)));
    if (dots == std::string::npos) continue;
    const std::uint32_t last = one(word.substr(dots + 2));
    if (last < sizes.back())
      reading.fail_with("--sizes", word + ": from the smaller to the larger");
    for (std::uint64_t size = 4; size < last; size *= 4) {
      if (size > sizes.back()) sizes.push_back(static_cast<std::uint32_t>(size));
    }
    sizes.push_back(last);
  }
  return sizes;
}

std::vector<std::string> read_peers(Reading& reading, const Words& words) {
  if (words.peers == "none") return {};
  std::vector<std::string> known{"raw"};
  if (words.pattern == Pattern::stream) known.insert(known.end(), {"memcpy", "zeromq", "mpi"});
  if (words.pattern == Pattern::roundtrip) known.insert(known.end(), {"zeromq", "mpi"});
  if (words.pattern == Pattern::pubsub) known.emplace_back("zeromq");
  if (words.pattern == Pattern::nxn) known.emplace_back("fair");
  if (words.peers.empty()) return known;
  auto peers = split(words.peers);
  for (const auto& peer : peers) {
    if (std::ranges::find(known, peer) == known.end()) {
      reading.fail_with("--peers",
                        fmt::format("there is no '{}': {}, or none", peer, fmt::join(known, ", ")));
    }
  }
  return peers;
}

Result<bench::MessageBenchOptions> read_options(Words words) {
  Reading reading;
  bench::MessageBenchOptions options;
  if (auto read = read_nodes(words.hosts, words.senders, words.receivers); !read)
    return std::unexpected(read.error());
  auto hosts = read_host_list(words.hosts, words.senders, words.receivers);
  if (!hosts) return std::unexpected(hosts.error());
  options.hosts = std::move(*hosts);
  if (words.congestion.empty() && options.hosts) words.congestion = options.hosts->congestion;
  if (words.congestion.empty()) words.congestion = bench::host_congestion();
  bench::Spec& spec = options.spec;
  spec.pattern = words.pattern;
  spec.url = reading.url("--url", words.url);
  if (spec.url.port != 0) { // somebody listens there
    options.other_host = spec.url;
    if (spec.url.scheme != "tcp") reading.fail_with("--url", "across two hosts: tcp only");
    spec.url.port = 0;
    spec.url.host.clear();
  }
  if (options.hosts && (options.other_host || spec.url.scheme != "tcp"))
    reading.fail_with("--url", "on a list of hosts: tcp, without a port");
  spec.congestion = words.congestion;
  if (spec.url.scheme == "tcp") reading.congestion(words.congestion);
  if (spec.url.scheme == "tcp") spec.url.options.try_emplace("congestion", words.congestion);
  options.sizes = read_sizes(reading, words.sizes.empty() ? sizes_default : words.sizes);
  options.peers = read_peers(reading, words);
  if (const auto time = parse_duration(words.duration); reading.keep("--duration", time))
    options.window.duration = *time;
  if (options.window.duration < shortest_sample)
    reading.fail_with("--duration", fmt::format("{} at least", format_duration(shortest_sample)));
  options.runs = words.runs;
  options.stolen_max = words.stolen_max / 100;
  options.under_load = words.under_load;
  spec.senders = words.senders;
  spec.receivers = words.receivers;
  spec.pipeline = words.pipeline;
  spec.read = words.read;
  if (const auto policy = builder::shaping::policy_named(words.shaping)) {
    spec.shaping.policy = *policy;
  } else {
    reading.fail_with("--shaping", fmt::format("there is no '{}': {}", words.shaping, shapings));
  }
  reading.rate("--rate", words.rate, spec.period);
  spec.wait = words.wait == "poll" ? net::WaitPolicy::poll : net::WaitPolicy::block;
  if (!reading.result()) return std::unexpected(reading.result().error());
  return options;
}

int listen(const Words& words, const bench::Progress& progress) {
  const auto url = net::Url::parse(words.listen);
  if (!url) return complain(url.error());
  // There is nothing to be taken down: what it has started ends with it.
  std::signal(SIGINT, [](int) { _exit(status_done); });
  std::signal(SIGTERM, [](int) { _exit(status_done); });
  return complain(bench::serve_ends(*url, progress).error());
}

int run(const Words& words) {
  const bench::Progress progress = [&words](std::string_view line) {
    if (!words.quiet) say(fmt::format("{}\n", line));
  };
  if (!words.listen.empty()) return listen(words, progress);
  const auto options = read_options(words);
  if (!options) return complain(options.error());
  auto json = JsonFile::open(words.json);
  if (!json) return complain(json.error());
  auto plot = OutputFile::open("--plot", words.plot);
  if (!plot) return complain(plot.error());
  const auto result = bench::bench_messages(*options, progress);
  if (!result) return complain(result.error());
  if (words.json != "-" && words.plot != "-") print(bench::message_table(*result));
  if (auto written = json->write(*result); !written) return complain(written.error());
  const auto drawn = plot->write(bench::message_plot(*result));
  return drawn ? status_done : complain(drawn.error());
}

std::shared_ptr<Words> add(CLI::App& bench, int& status, Pattern pattern, const char* what,
                           CLI::App*& command) {
  auto words = std::make_shared<Words>();
  words->pattern = pattern;
  command = bench.add_subcommand(std::string(bench::name(pattern)), what);
  auto* url = command->add_option(
      "--url", words->url, "Transport: tcp, shm, inproc; or the address at which --listen listens");
  command
      ->add_option("--listen", words->listen,
                   "Makes this the other host of a measurement, as tcp://0.0.0.0:7000; ^C ends")
      ->excludes(url);
  command->add_option("--size,--sizes", words->sizes,
                      "Size of a message: 64KiB, or 64B,1KiB, or 8B..64MiB");
  command->add_option("--peers", words->peers, "Contenders beside fanin, as raw,zeromq; or none");
  command->add_option("--duration", words->duration, "Length of one measurement, as 2s");
  command->add_option("--runs", words->runs, "Measurements of each contender, in turns")
      ->check(CLI::Range(1, 1000));
  command->add_option("--wait", words->wait, "poll (default where there are enough cores) or block")
      ->check(CLI::IsMember({"poll", "block"}));
  command->add_option("--congestion", words->congestion,
                      "TCP congestion control of all connections; default: the host's. With "
                      "another one zeromq and mpi are left out");
  add_stolen_option(*command, words->stolen_max);
  command->add_option("--json", words->json, "File for the result; - is standard output");
  command->add_option("--plot", words->plot, "File for a drawing of the result, SVG");
  command->add_flag("-q,--quiet", words->quiet, "No progress");
  command->callback([words, &status] { status = run(*words); });
  return words;
}

} // namespace

void add_message_benches(CLI::App& bench, int& status) {
  CLI::App* command = nullptr;
  auto words = add(bench, status, Pattern::stream, "One-way throughput, two processes", command);
  command->add_flag("--read", words->read, "Receivers read every byte, not only the first");

  words = add(bench, status, Pattern::roundtrip, "Round-trip time, two processes", command);
  command->add_option("--pipeline", words->pipeline, "Messages under way")
      ->check(CLI::Range(1, 65536));
  command->add_option(
      "--rate", words->rate,
      "Send at a fixed rate, as 10kHz; each message is timed from its intended start");
  command->add_flag("--under-load", words->under_load,
                    "Measure fanin again while a stream uses the same path");

  words = add(bench, status, Pattern::pubsub, "One publisher; sum of what its subscribers receive",
              command);
  words->receivers = 4;
  command->add_option("--subscribers", words->receivers, "Processes that subscribe")
      ->check(CLI::Range(std::size_t{1}, bench::processes_max));

  words = add(bench, status, Pattern::nxn,
              "N senders that send to M receivers in turn; fill and checks as in event building",
              command);
  command->add_option("--rus", words->senders, "Senders")
      ->check(CLI::Range(std::size_t{1}, bench::processes_max));
  command->add_option("--bus", words->receivers, "Receivers")
      ->check(CLI::Range(std::size_t{1}, bench::processes_max));
  command->add_option("--shaping", words->shaping, shapings);
  add_host_options(*command, words->hosts);
}

} // namespace fanin::command
