#include "fanin/bench/evb_processes.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <memory>
#include <numeric>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "fanin/base/try.hpp"
#include "fanin/bench/cpu_quota.hpp"
#include "fanin/bench/fragment_sender.hpp"
#include "fanin/bench/members.hpp"
#include "fanin/executive/observer.hpp"
#include "fanin/executive/process.hpp"

namespace fanin::bench {
namespace {

constexpr Duration settle_time = std::chrono::seconds{1}; // of what a limit changes
constexpr Duration node_patience = std::chrono::seconds{10};
constexpr std::uint32_t usual_fragment_max = 1U << 20; // of a source, where nothing else is said

// Counts into the process's stats what its nodes do.
class StatsObserver final : public executive::Observer {
public:
  explicit StatsObserver(ProcessStats& stats) : stats_(stats) {}

  void on_begin() override { stats_.state = ProcessStats::State::running; }
  void on_batch(const executive::StoredBatch& batch) override {
    stats_.batches.add(1);
    stats_.events.add(batch.events);
    stats_.messages.add(batch.fragments);
    stats_.bytes.add(batch.bytes);
  }
  void on_end(const builder::RunSummary& run) override {
    stats_.latency = run.latency;
    if (!run.error.empty()) {
      stats_.note(run.error);
    } else if (!run.balanced || run.events_incomplete != 0 || run.events_lost != 0) {
      stats_.note(fmt::format("{} built, {} incomplete, {} lost, {}", run.events_built,
                              run.events_incomplete, run.events_lost,
                              run.balanced ? "balanced" : "NOT BALANCED"));
    }
  }
  // Of a node of this process (executive/report.hpp).
  void report(const json::Value& report) {
    const std::string kind = report.at("report").text();
    if (kind == "listening") {
      stats_.listens_at(report.at("url").text());
    } else if (kind == "senders") {
      std::string lines;
      for (const auto& url : report.at("urls").list()) lines += url.text() + "\n";
      stats_.listens_at(lines);
    } else if (kind == "log" && report.at("level").text() == "error") {
      stats_.note(report.at("text").text());
    } else if (kind == "end" && !report.at("ok").boolean() && outcome_) {
      outcome_ = fail(ErrorKind::internal, report.at("error").text());
    }
  }
  [[nodiscard]] const Result<>& outcome() const { return outcome_; }

private:
  ProcessStats& stats_;
  Result<> outcome_;
};

Result<> run_child(const config::Configuration& configuration, std::vector<std::size_t> nodes,
                   ProcessStats& stats) {
  const auto plugins = FANIN_TRY(executive::Plugins::load(configuration));
  StatsObserver observer(stats);
  const auto process = FANIN_TRY(executive::Process::make(
      configuration, plugins,
      {.nodes = std::move(nodes),
       .report = [&observer](const json::Value& report) { observer.report(report); },
       .attended = false,
       .observer = &observer}));
  FANIN_TRY(process->run());
  return observer.outcome();
}

Result<> start_in_one_process(ProcessGroup& group, const EvbSetup& setup) {
  auto started = FANIN_TRY(group.start("all", [&](ProcessStats& stats) {
    std::vector<std::size_t> nodes(setup.configuration.nodes.size());
    std::iota(nodes.begin(), nodes.end(), 0U);
    return run_child(setup.configuration, std::move(nodes), stats);
  }));
  return group.wait_until(started, ProcessStats::State::running);
}

// Of the readout unit with that number, whose process says in `said` where its sources wait.
SenderOptions sender_options(const EvbSetup& setup, std::size_t readout, std::string_view said) {
  SenderOptions options{.urls = {},
                        .first =
                            setup.configuration.sources[readout * setup.shape.sources].settings.id,
                        .size = setup.fragment_size,
                        .checksum = setup.configuration.system.integrity};
  while (!said.empty()) {
    const auto end = said.find('\n');
    options.urls.emplace_back(said.substr(0, end));
    said.remove_prefix(end + 1);
  }
  return options;
}

// One beside each readout unit, which are the members after the event manager.
Result<> start_senders(ProcessGroup& group, const EvbSetup& setup) {
  if (!setup.shape.receive) return {};
  for (std::size_t i = 0; i < setup.shape.readout_units; ++i) {
    FANIN_TRY(group.wait_until(1 + i, ProcessStats::State::ready));
    const auto options = sender_options(setup, i, group.stats(1 + i).text.data());
    const std::string name = fmt::format("sender{}", i);
    json::Value task;
    task["send"] = object_of(options);
    FANIN_TRY(setup.hosts != nullptr ? group.start_on(setup.hosts->hosts[1 + i], name, task)
                                     : group.start(name, [&options](ProcessStats& stats) {
                                         return send_fragments(options, stats);
                                       }));
  }
  return {};
}

json::Value evb_task(const EvbSetup& setup, std::size_t node, net::WaitPolicy wait) {
  json::Value task;
  task["evb"] = object_of(setup.shape);
  task["hosts"] = setup.hosts->addresses();
  task["node"] = node;
  task["poll"] = wait == net::WaitPolicy::poll;
  return task;
}

// A node here or on its host. `manager`: where the event manager listens; empty: it is the node.
Result<std::size_t> start_node(ProcessGroup& group, const EvbSetup& setup, std::size_t node,
                               const std::string& manager) {
  config::Configuration own = setup.configuration;
  if (node == 0) own.network.wait = setup.manager_wait;
  if (setup.hosts != nullptr) {
    json::Value task = evb_task(setup, node, own.network.wait);
    if (!manager.empty()) task["control"] = manager;
    return group.start_on(setup.hosts->hosts[node], own.nodes[node].name, task);
  }
  if (!manager.empty()) {
    auto url = FANIN_TRY(net::Url::parse(manager));
    own.nodes.front().urls = {std::move(url)};
  }
  return group.start(own.nodes[node].name,
                     [&](ProcessStats& stats) { return run_child(own, {node}, stats); });
}

Result<> start_all(ProcessGroup& group, const EvbSetup& setup) {
  if (setup.hosts == nullptr && setup.configuration.processes.size() == 1)
    return start_in_one_process(group, setup);
  const auto manager = FANIN_TRY(start_node(group, setup, 0, {}));
  FANIN_TRY(group.wait_until(manager, ProcessStats::State::ready));
  const std::string url = group.stats(manager).text.data();
  for (std::size_t i = 1; i < setup.configuration.nodes.size(); ++i)
    FANIN_TRY(start_node(group, setup, i, url));
  FANIN_TRY(start_senders(group, setup));
  return group.wait_until(manager, ProcessStats::State::running);
}

// Where one measurement writes to; removed with all that is in it.
struct RemoveFolder {
  void operator()(const std::string* path) const {
    std::error_code ignored;
    std::filesystem::remove_all(*path, ignored);
    delete path;
  }
};
using Folder = std::unique_ptr<const std::string, RemoveFolder>;

Result<Folder> make_folder(const std::string& parent) {
  std::error_code error;
  std::filesystem::create_directories(parent, error);
  std::string path = parent + "/evb-XXXXXX";
  if (error || mkdtemp(path.data()) == nullptr)
    return fail_errno(ErrorKind::usage, fmt::format("{}: no folder can be made there", parent),
                      errno);
  return Folder(new std::string(std::move(path)));
}

using MeasureGroup = std::function<Result<Sample>(ProcessGroup&)>;

Result<Sample> measure_evb(const EvbSetup& setup, const MeasureGroup& measure) {
  ProcessGroup group;
  if (setup.hosts != nullptr) group.watch_switches(setup.hosts->switch_words);
  FANIN_TRY(start_all(group, setup));
  auto sample = FANIN_TRY(measure(group));
  group.terminate(0); // the event manager ends the run
  if (auto ended = group.wait_until_ended(node_patience); !ended)
    sample.remark = ended.error().text;
  sample.latency = group.stats(0).latency;
  for (std::size_t i = 0; i < group.size() && sample.remark.empty(); ++i)
    sample.remark = group.stats(i).remark.data();
  return sample;
}

} // namespace

Result<config::Configuration> evb_configuration(const EvbShape& shape) {
  const std::string_view type =
      shape.receive ? "type = \"receive\", listen = \"tcp://127.0.0.1:0\", wait_for_sender = true"
                    : "type = \"emulator\"";
  std::string size;
  if (!shape.receive && shape.fragment_sigma != 0)
    size = fmt::format(", size_mean = \"{}B\", size_sigma = \"{}B\"", shape.fragment_size,
                       shape.fragment_sigma);
  else if (!shape.receive)
    size = fmt::format(", size = \"{}B\"", shape.fragment_size);
  const std::vector<std::string> rails(shape.rails, fmt::format("\"{}\"", shape.url));
  const std::string text =
      fmt::format("run.output = \"discard\"\n"
                  "[[readout]]\ncount = {}\n"
                  "source = [{{ id = 1, count = {}, {}{}, fragment_max = \"{}B\" }}]\n"
                  "[[builder]]\ncount = {}\n{}",
                  shape.readout_units, shape.sources, type, size,
                  std::max(shape.fragment_size, usual_fragment_max), shape.builder_units,
                  rails.size() == 1 ? "" : fmt::format("url = [{}]\n", fmt::join(rails, ", ")));
  return config::parse(text, "bench evb", shape.overrides);
}

Result<ProcessGroup::Body> evb_body(const json::Value& task) {
  EvbShape shape;
  FANIN_TRY(read_object(task.at("evb"), shape));
  auto configuration = FANIN_TRY(evb_configuration(shape));
  const auto hosts = FANIN_TRY(executive::parse_hosts(task.at("hosts").text(), "hosts"));
  FANIN_TRY(executive::assign_hosts(configuration, hosts));
  const std::size_t node = task.at("node").natural();
  if (node >= configuration.nodes.size()) return fail(ErrorKind::malformed, "no such node");
  if (task.find("control") != nullptr) {
    const auto url = FANIN_TRY(net::Url::parse(task.at("control").text()));
    configuration.nodes.front().urls = {url};
  }
  configuration.network.wait =
      task.at("poll").boolean() ? net::WaitPolicy::poll : net::WaitPolicy::block;
  return [own = std::move(configuration), node](ProcessStats& stats) {
    return run_child(own, {node}, stats);
  };
}

Result<Sample> run_evb(const EvbSetup& setup, const Window& window, bool idle, const Watch& watch) {
  const MeasureGroup measure = [&](ProcessGroup& group) {
    return group.measure(window.warmup, window.duration, !idle, watch);
  };
  if (setup.configuration.run.output.empty()) return measure_evb(setup, measure);
  const auto folder = FANIN_TRY(make_folder(setup.configuration.run.output));
  EvbSetup own = setup;
  own.configuration.run.output = *folder;
  return measure_evb(own, measure);
}

Result<Sample> run_throttled_evb(const EvbSetup& setup, const Window& window, double share) {
  const std::size_t builder = 1 + setup.shape.readout_units; // after the event manager and these
  const auto others = [&](const Sample& sample) {
    double sum = 0;
    for (std::size_t i = 0; i < setup.shape.builder_units; ++i)
      sum += i == 0 ? 0 : sample.processes[builder + i].bytes_per_s;
    return sum;
  };
  return measure_evb(setup, [&](ProcessGroup& group) -> Result<Sample> {
    const auto before = FANIN_TRY(group.measure(window.warmup, window.duration));
    const auto pid = FANIN_TRY(group.pid_of(builder));
    const double cpu = before.processes[builder].cpu;
    const auto quota = FANIN_TRY(CpuQuota::make(pid, share * cpu));
    auto sample = FANIN_TRY(group.measure(window.warmup + settle_time, window.duration));
    sample.throttled = {.cpu_before = cpu,
                        .quota = quota.cores(),
                        .cpu = sample.processes[builder].cpu,
                        .others_bytes_per_s_before = others(before),
                        .others_bytes_per_s = others(sample)};
    return sample;
  });
}

} // namespace fanin::bench
