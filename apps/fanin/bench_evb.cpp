// fanin bench evb: event building beside bare loops, in the same run.
#include <array>
#include <charconv>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "bench.hpp"
#include "commands.hpp"
#include "fanin/base/try.hpp"
#include "fanin/base/units.hpp"
#include "fanin/bench/bodies.hpp"
#include "fanin/bench/cpu_quota.hpp"
#include "fanin/bench/evb.hpp"
#include "fanin/bench/machine.hpp"
#include "fanin/bench/message_bench.hpp"
#include "fanin/executive/placement.hpp"
#include "reading.hpp"
#include "terminal.hpp"

namespace fanin::command {
namespace {

constexpr std::uint32_t fragment_size_max = 16U << 20;
const std::string no_event_within_a_run = "0.001Hz"; // and yet connected

struct EvbArguments : BenchArguments {
  std::size_t sources = 1;
  std::string fragment_sigma; // empty: all have the same size
  std::string working_set;
  std::string requirement;
  std::string throttle;
  std::string storage;
  std::vector<std::string> keys; // KEY=VALUE of the configuration
  std::string every; // empty: no course of time
  std::size_t side_load = 0;
  std::string side_load_from = "50%";
  std::string sensors; // empty: this host's
  std::string csv;
  bool receive = false;
  bool ladder = false;
  bool idle = false;
  bool no_baselines = false;
};

// Options that are keys of the configuration, which says what is wrong with them.
struct KeyOption {
  const char* name;
  const char* key;
  const char* text;
};
constexpr auto key_options = std::to_array<KeyOption>({
    {"--protocol", "network.protocol", "push or pull"},
    {"--shaping-window", "shaping.window",
     "Most bytes under way to a builder unit with a shaping (shaping.window): three quarters of "
     "the buffer of a switch's port"},
    {"--integrity", "event.integrity", "crc32c or none"},
    {"--latency", "event.latency", "Latency budget, as 0 (event.latency); default: 50ms"},
    {"--page", "buffers.page", "Page size of all pools of payload (buffers.page)"},
    {"--readout-buffer", "buffers.readout", "Memory of each readout unit"},
    {"--builder-buffer", "buffers.builder", "Memory of each builder unit"},
    {"--batch-events", "event.batch_events", "Most events in a batch"},
    {"--batch-size", "event.batch_size", "Bytes at which a batch is cut, of all sources"},
    {"--transfer-window", "network.transfer_window", "Most bytes under way to a builder unit"},
});

void add_key_options(CLI::App& command, EvbArguments& arguments) {
  for (const KeyOption& option : key_options) {
    command.add_option_function<std::string>(
        option.name,
        [&arguments, key = option.key](const std::string& value) {
          arguments.keys.push_back(fmt::format("{}={}", key, value));
        },
        option.text);
  }
}

std::vector<std::string> overrides(const EvbArguments& arguments, const net::Url& url, bool poll) {
  std::vector<std::string> all{fmt::format("network.url={}", url.text()),
                               fmt::format("network.wait={}", poll ? "poll" : "block"),
                               fmt::format("shaping.policy={}", arguments.shaping)};
  all.insert(all.end(), arguments.keys.begin(), arguments.keys.end());
  const std::string& rate = arguments.idle ? no_event_within_a_run : arguments.rate;
  if (!rate.empty()) all.push_back("trigger.rate=" + rate);
  if (!arguments.storage.empty()) all.push_back("run.output=" + arguments.storage);
  return all;
}

// On other hosts: what cannot be there.
void check_elsewhere(const EvbArguments& arguments, const net::Url& url, Reading& reading) {
  if (url.reach() != net::Reach::network)
    reading.fail_with("--url", "does not reach other hosts: use tcp");
  if (!arguments.storage.empty()) reading.fail_with("--storage", "not on other hosts");
  if (arguments.ladder) reading.fail_with("--ladder", "not on other hosts");
}

// With --receive, separate sender processes send as fast as their fragments are taken.
void check_receive(const EvbArguments& arguments, const net::Url& url, Reading& reading) {
  if (!arguments.receive) return;
  if (url.reach() == net::Reach::process)
    reading.fail_with("--receive", "needs separate processes: use tcp or shm");
  if (!arguments.rate.empty() || arguments.idle)
    reading.fail_with("--receive", "its senders know no rate: not with --rate or --idle");
}

void read_requirement(const EvbArguments& arguments, bench::EvbOptions& options, Reading& reading) {
  if (arguments.requirement.empty()) return;
  const auto required = parse_rate_hz(arguments.requirement);
  if (reading.keep("--requirement", required)) options.requirement_hz = *required;
  if (!arguments.rate.empty() || arguments.idle)
    reading.fail_with("--requirement", "compares the highest rate: not with --rate or --idle");
}

// "50%" as a share.
double read_percent(const char* option, const std::string& text, Reading& reading) {
  double percent = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), percent);
  const bool good = error == std::errc{} && std::string_view(end) == "%" && percent >= 0;
  if (!good || percent > 100)
    reading.fail_with(option, fmt::format("\"{}\" is no share from 0% to 100%", text));
  return percent / 100;
}

void read_throttle(const EvbArguments& arguments, bench::EvbOptions& options, Reading& reading) {
  if (arguments.throttle.empty()) return;
  options.throttle = read_percent("--throttle", arguments.throttle, reading);
  if (arguments.receivers < 2)
    reading.fail_with("--throttle", "needs several builder units: --bus 2");
  if (options.hosts && !options.hosts->testbed)
    reading.fail_with("--throttle", "not on other hosts, but for the testbed");
  if (options.url.reach() == net::Reach::process || !arguments.storage.empty() || arguments.idle ||
      !arguments.every.empty())
    reading.fail_with("--throttle", "not with inproc, --storage, --idle or --every");
  reading.keep("--throttle", bench::CpuQuota::check());
}

void read_timeline(const EvbArguments& arguments, bench::EvbOptions& options, Reading& reading) {
  for (const auto& [option, given] : {std::pair{"--side-load", arguments.side_load != 0},
                                      {"--sensors", !arguments.sensors.empty()},
                                      {"--csv", !arguments.csv.empty()}}) {
    if (given && arguments.every.empty())
      reading.fail_with(option, "is about a course of time: give --every too");
  }
  if (arguments.every.empty()) return;
  bench::TimelineOptions timeline;
  if (const auto every = parse_duration(arguments.every); reading.keep("--every", every))
    timeline.every = *every;
  if (timeline.every < shortest_sample || timeline.every > options.window.duration)
    reading.fail_with("--every",
                      fmt::format("from {} to the duration", format_duration(shortest_sample)));
  timeline.side_load = arguments.side_load;
  timeline.side_load_from = read_percent("--side-load-from", arguments.side_load_from, reading);
  if (!arguments.sensors.empty()) timeline.sensors = arguments.sensors;
  if (options.hosts && !options.hosts->testbed) {
    if (arguments.side_load != 0) reading.fail_with("--side-load", "not on other hosts");
    timeline.sensors.reset();
  }
  options.timeline = timeline;
}

// Errors: those of the configuration, and of its hosts.
Result<> configure(bench::EvbSetup& setup, const executive::HostList* hosts) {
  auto configuration = FANIN_TRY(bench::evb_configuration(setup.shape));
  setup.hosts = hosts;
  if (hosts != nullptr) FANIN_TRY(executive::assign_hosts(configuration, *hosts));
  setup.configuration = std::move(configuration);
  return {};
}

// Of one of the sizes.
Result<bench::EvbOptions> read_evb(EvbArguments arguments, std::uint32_t fragment_size) {
  Reading reading;
  bench::EvbOptions options;
  options.hosts = FANIN_TRY(read_hosts(arguments));
  bench::EvbSetup& setup = options.setup;
  options.url = reading.url("--url", arguments.url);
  if (options.hosts) check_elsewhere(arguments, options.url, reading);
  check_receive(arguments, options.url, reading);
  read_requirement(arguments, options, reading);
  read_throttle(arguments, options, reading);
  std::uint32_t sigma = 0;
  reading.size("--fragment-sigma", arguments.fragment_sigma, sigma);
  if (sigma != 0 && arguments.receive)
    reading.fail_with("--fragment-sigma", "not with --receive, whose fragments are all alike");
  options.congestion = share_congestion(options.url, arguments, options.hosts.get(), reading);
  setup.fragment_size = fragment_size;
  read_rounds(arguments, options.window.duration, options.rounds, reading);
  read_timeline(arguments, options, reading);
  reading.size("--working-set", arguments.working_set, options.working_set);
  // Processes that poll where others need the core take it away: there, polling becomes blocking.
  const std::size_t processes =
      (arguments.receive ? 2 : 1) * arguments.senders + arguments.receivers;
  // One that polls takes a whole core, however little it has to do: it has nothing to throttle.
  const bool poll = arguments.wait == "poll" && !arguments.idle && arguments.throttle.empty() &&
                    processes <= executive::usable_cores();
  const bool poll_evm = poll && processes < executive::usable_cores();
  setup.manager_wait = poll_evm ? net::WaitPolicy::poll : net::WaitPolicy::block;
  if (arguments.sources < arguments.rails)
    reading.fail_with("--rails", fmt::format("a source uses one at a time: give --sources {} too",
                                             arguments.rails));
  options.baselines = !arguments.no_baselines;
  options.ladder = arguments.ladder;
  options.idle = arguments.idle;
  FANIN_TRY(reading.result());
  setup.shape = {.readout_units = arguments.senders,
                 .builder_units = arguments.receivers,
                 .sources = arguments.sources,
                 .fragment_size = setup.fragment_size,
                 .fragment_sigma = sigma,
                 .receive = arguments.receive,
                 .rails = arguments.rails,
                 .url = options.url.text(),
                 .overrides = overrides(arguments, options.url, poll)};
  FANIN_TRY(configure(setup, options.hosts.get()));
  if (setup.shape.rails > 1 && !options.timeline) {
    options.one_rail = setup;
    options.one_rail->shape.rails = 1;
    FANIN_TRY(configure(*options.one_rail, options.hosts.get()));
  }
  if (arguments.full_duplex && !options.timeline) {
    options.full_duplex_hosts = std::make_shared<const executive::HostList>(
        bench::with_both_on_each(*options.hosts, arguments.senders));
    options.full_duplex = setup;
    FANIN_TRY(configure(*options.full_duplex, options.full_duplex_hosts.get()));
  }
  return options;
}

std::string title_of(const json::Value& result) {
  const json::Value& settings = result.at("settings");
  return fmt::format("Event building {}x{}, {}, fragments of {}", settings.at("rus").natural(),
                     settings.at("bus").natural(), settings.at("url").text(),
                     format_size(settings.at("fragment_size_bytes").natural()));
}

// A bench for each size; all are read before the first one begins.
Result<std::vector<bench::EvbOptions>> read_sizes(const EvbArguments& arguments) {
  Reading reading;
  const auto sizes = reading.sizes("--fragment-sizes", arguments.sizes, fragment_size_max);
  if (sizes.size() > 1 && !arguments.every.empty())
    reading.fail_with("--every", "one size of a fragment at a time");
  FANIN_TRY(reading.result());
  std::vector<bench::EvbOptions> all;
  for (const std::uint32_t size : sizes) {
    auto options = FANIN_TRY(read_evb(arguments, size));
    all.push_back(std::move(options));
  }
  return all;
}

// Of all sizes: settings of the first one, and the rows of each.
Result<json::Value> measure(const std::vector<bench::EvbOptions>& all,
                            const bench::Progress& progress) {
  json::Value result;
  for (const bench::EvbOptions& options : all) {
    if (all.size() > 1 && progress)
      progress(fmt::format("fragments of {}", format_size(options.setup.fragment_size)));
    auto one = FANIN_TRY(bench::bench_evb(options, progress));
    if (result.is_null()) {
      result = std::move(one);
      continue;
    }
    for (const auto& row : one.at("results").list()) result["results"].append(row);
  }
  return result;
}

Result<int> run_evb(const EvbArguments& arguments) {
  const auto options = FANIN_TRY(read_sizes(arguments));
  const bench::Progress progress = progress_of(arguments);
  auto json = FANIN_TRY(OutputFile::open("--json", arguments.json));
  auto csv = FANIN_TRY(OutputFile::open("--csv", arguments.csv));
  auto drawing = FANIN_TRY(OutputFile::open("--plot", arguments.plot));
  FANIN_TRY(OutputFile::check_apart({&json, &csv, &drawing}));
  const auto result = FANIN_TRY(measure(options, progress));
  if (arguments.json != "-" && arguments.csv != "-" && arguments.plot != "-")
    print(bench::evb_table(result));
  FANIN_TRY(json.write_json(result));
  if (!options.front().timeline) {
    FANIN_TRY(drawing.write(bench::plot_over_sizes(result)));
  } else {
    const json::Value& timeline = result.at("timeline");
    FANIN_TRY(csv.write(bench::timeline_csv(timeline)));
    FANIN_TRY(drawing.write(bench::to_svg(bench::timeline_plot(timeline, title_of(result)))));
  }
  return status_done;
}

// Of a course of time.
void add_timeline_options(CLI::App& command, EvbArguments& arguments) {
  command.add_option("--every", arguments.every,
                     "Report event building in the course of time, as 1s: one measurement, "
                     "without baselines");
  command
      .add_option("--side-load", arguments.side_load,
                  "With --every: cores that other work takes from --side-load-from on")
      ->check(CLI::Range(0, 1024));
  command.add_option("--side-load-from", arguments.side_load_from,
                     "Share of the duration after which it begins; default: 50%");
  command.add_option("--sensors", arguments.sensors,
                     "With --every: folder in place of / with the sys and dev of the sensors");
  command.add_option("--csv", arguments.csv, "With --every: file for a row of each moment");
}

} // namespace

void add_evb(CLI::App& bench, int& status) {
  auto arguments = std::make_shared<EvbArguments>();
  arguments->sizes = "16KiB";
  arguments->duration = "2s";
  arguments->runs = 5;
  CLI::App* command =
      bench.add_subcommand("evb", "Event building: emulated data, events discarded");
  add_bench_options(*command, *arguments);
  add_host_options(*command, *arguments);
  command->add_option("--sources", arguments->sources, "Sources of each readout unit")
      ->check(CLI::Range(1, 256));
  command->add_option("--url", arguments->url, "Transport: tcp, shm, inproc, or a whole address");
  command->add_option("--fragment-size,--fragment-sizes", arguments->sizes,
                      "Size of a fragment, as 16KiB; or several: 200B,1KiB, or 64B..1MiB");
  command->add_option("--fragment-sigma", arguments->fragment_sigma,
                      "Sizes are log-normal with the mean --fragment-size and this standard "
                      "deviation");
  command->add_option("--shaping", arguments->shaping, shapings);
  command->add_option("--working-set", arguments->working_set,
                      "Working set of each end of the fair loop, as 8MiB");
  command->add_option("--rate", arguments->rate,
                      "Trigger at a fixed rate, as 10kHz, and report the latency");
  command->add_flag("--receive", arguments->receive,
                    "Fragments come over sockets, from a process beside each readout unit");
  command->add_option("--requirement", arguments->requirement,
                      "Event rate, as 1kHz: say and draw which sizes of fragments reach it");
  command->add_option("--throttle", arguments->throttle,
                      "Also measure with one builder unit held to this share of the processor "
                      "time that it takes, as 10%");
  command->add_option(
      "--storage", arguments->storage,
      "Folder to which events are written; files are removed after each measurement");
  add_key_options(*command, *arguments);
  add_timeline_options(*command, *arguments);
  command->add_flag("--ladder", arguments->ladder,
                    "Also measure the layers between the bare loop and event building");
  command->add_flag("--idle", arguments->idle, "Measure idle processes: connected, without events");
  command->add_flag("--no-baselines", arguments->no_baselines, "Measure event building only");
  command->callback([arguments, &status] { status = status_of(run_evb(*arguments)); });
}

} // namespace fanin::command
