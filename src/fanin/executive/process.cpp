#include "fanin/executive/process.hpp"

#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "fanin/base/assert.hpp"
#include "fanin/base/try.hpp"
#include "fanin/executive/placement.hpp"
#include "fanin/executive/plugin_call.hpp"
#include "fanin/executive/report.hpp"
#include "fanin/executive/signals.hpp"

namespace fanin::executive {
namespace {

constexpr Duration usage_period = std::chrono::seconds{1};

} // namespace

// Looks after the nodes once in every turn.
class Process::Turns final : public net::Service {
public:
  explicit Turns(Process& process) : process_(process) { process_.loop_.add(*this); }
  ~Turns() override { process_.loop_.remove(*this); }
  bool poll() override {
    process_.turn();
    return false;
  }

private:
  Process& process_;
};

Process::Process(const config::Configuration& configuration, const Plugins& plugins,
                 ProcessOptions options)
    : configuration_(configuration),
      plugins_(plugins),
      options_(std::move(options)),
      stop_requests_(options_.signals_from),
      loop_(clock_, configuration.network.wait),
      resolver_(loop_),
      usage_tick_([this] { report_usage(); }) {
  if (options_.session == 0) options_.session = new_session();
}

Process::~Process() {
  turns_.reset();
  signals_.reset();
  requests_.reset();
  nodes_.clear();
  for (auto& transport : transports_) loop_.remove(*transport);
  transports_.clear();
}

Result<std::unique_ptr<Process>> Process::make(const config::Configuration& configuration,
                                               const Plugins& plugins, ProcessOptions options) {
  std::unique_ptr<Process> process(new Process(configuration, plugins, std::move(options)));
  process->plans_ = FANIN_TRY(plan_memory(configuration, plugins.transports));
  for (const auto made :
       {&Process::make_signals, &Process::make_transports, &Process::make_nodes}) {
    FANIN_TRY(((*process).*made)());
  }
  return process;
}

// Before the pools are made, which may take seconds: a signal that comes meanwhile is kept.
Result<> Process::make_signals() {
  signals_ = FANIN_TRY(
      Signals::make(loop_, {.on_signal = [this](const StopSignal& signal) { on_signal(signal); },
                            .on_death =
                                [this](pid_t sender, std::uint64_t session) {
                                  if (options_.attended || sender != getppid()) return;
                                  for (auto& node : nodes_) node->process_died(session);
                                }}));
  return {};
}

Result<> Process::make_transports() {
  std::set<std::string> schemes;
  for (const config::Node& node : configuration_.nodes) {
    for (const net::Url& url : node.urls) schemes.insert(url.scheme);
    if (node.filter_url) schemes.insert(node.filter_url->scheme);
    if (node.monitoring_url) schemes.insert(node.monitoring_url->scheme);
  }
  const LogFunction log_function = [this](LogLevel level, std::string_view text) {
    log(options_.nodes.front(), level, text);
  };
  for (const std::string& scheme : schemes) {
    const net::TransportFactory factory = plugins_.transports.find(scheme);
    if (!factory) {
      return fail(ErrorKind::usage,
                  fmt::format("{}: there is no transport for {}://; there are: {}",
                              configuration_.file, scheme,
                              fmt::join(plugins_.transports.schemes(), ", ")));
    }
    const PluginCall call(
        fmt::format("{}: making the transport of {}://", configuration_.file, scheme));
    auto transport = FANIN_TRY(factory(loop_, log_function));
    transport_set_.add(scheme, *transport);
    loop_.add(*transport);
    transports_.push_back(std::move(transport));
  }
  return {};
}

bool Process::has_event_manager() const {
  return std::ranges::find(options_.nodes, 0U) != options_.nodes.end();
}

Result<> Process::make_nodes() {
  system_ = configuration_.system;
  system_.run = configuration_.run.number.value_or(1);
  FANIN_TRY(system_.validate());
  for (const std::size_t index : options_.nodes) {
    if (!configuration_.nodes[index].cpus.empty()) {
      FANIN_TRY(pin_thread(configuration_.nodes[index].cpus));
      break; // one loop, one thread: the first node that says so
    }
  }
  output_ = make_run_output(configuration_, system_, plugins_.sinks);
  FANIN_TRY(make_pools());
  for (const std::size_t index : options_.nodes) {
    NodeContext context;
    context.configuration = &configuration_;
    context.system = &system_;
    context.plugins = &plugins_;
    context.plan = &plans_[index];
    context.pools = &pools_[nodes_.size()];
    context.output = output_.get();
    context.index = index;
    context.event_manager = configuration_.event_manager().urls;
    context.by_hand = options_.attended && !has_event_manager();
    context.loop = &loop_;
    context.unix_ns_at_zero = unix_ns() - loop_.now().time_since_epoch().count();
    context.session = options_.session;
    context.run_id = configuration_.run.id.value_or(new_run_id());
    context.transports = &transport_set_;
    context.streams = &streams_;
    context.observer = options_.observer;
    context.report = [this, index](json::Value message) { report(index, std::move(message)); };
    context.log = [this, index](LogLevel level, std::string_view text) { log(index, level, text); };
    auto node = FANIN_TRY(Node::make(std::move(context)));
    nodes_.push_back(std::move(node));
  }
  end_reported_.resize(nodes_.size());
  return {};
}

// All before the first node, which may tell the launcher that it waits for senders: then it is
// watched, and pools may take long.
Result<> Process::make_pools() {
  for (const std::size_t index : options_.nodes) {
    auto pools = NodePools::make(plans_[index], {.numa_node = configuration_.nodes[index].numa_node,
                                                 .huge_pages = configuration_.buffers.huge_pages,
                                                 .shared = transport_set_.share_memory()});
    if (!pools) {
      return fail(
          pools.error().kind,
          fmt::format("{}: its buffers: {}", configuration_.nodes[index].name, pools.error().text));
    }
    pools_.push_back(std::move(*pools));
  }
  return {};
}

Result<> Process::start_nodes() {
  std::vector<net::Url> event_manager;
  for (auto& node : nodes_) { // the event manager's is the first, if it is here
    if (!event_manager.empty()) node->set_event_manager(event_manager);
    FANIN_TRY(node->start());
    if (auto rails = node->listening(); !rails.empty()) event_manager = std::move(rails);
  }
  return {};
}

Result<> Process::run() {
  FANIN_TRY(start_nodes());
  turns_ = std::make_unique<Turns>(*this);
  if (options_.requests)
    requests_ = options_.requests(loop_, [this](Request request) { on_request(request); });
  if (configuration_.run.controlled) report_usage();
  loop_.run();
  return {};
}

void Process::on_signal(const StopSignal& signal) {
  if (!stop_requests_.take(signal, loop_.now())) {
    if (has_event_manager() && !signal.by_launcher)
      log(options_.nodes.front(), LogLevel::info, ignored_text(signal));
  } else if (stop_requests_.at_once()) {
    stop_now("stopped at once by a second signal");
  } else {
    stop();
  }
}

void Process::on_request(Request request) {
  switch (request) {
  case Request::start:
    for (auto& node : nodes_) node->start_run();
    return;
  case Request::stop: return stop();
  case Request::abort: return stop_now("aborted");
  }
}

void Process::stop() {
  for (auto& node : nodes_) {
    if (!is_companion(*node)) node->stop();
  }
  const bool waits = !std::ranges::all_of(nodes_, [](const auto& node) { return node->ended(); });
  if (!options_.attended || !waits) return;
  log(options_.nodes.front(), LogLevel::info,
      !has_event_manager()
          ? "the event manager decides when the run is over; a second signal leaves at once"
      : options_.signals_from == SignalsFrom::anyone
          ? "stopping: what was read is still built; a second signal stops at once"
          : "stopping: what was read is still built");
}

// An application or a filter unit beside nodes of the run ends after them.
bool Process::is_companion(const Node& node) const {
  const auto waits = [](const Node& other) {
    const config::Role role = other.configured().role;
    return role == config::Role::application || role == config::Role::filter;
  };
  return waits(node) &&
         !std::ranges::all_of(nodes_, [&](const auto& other) { return waits(*other); });
}

void Process::stop_now(const std::string& why) {
  for (auto& node : nodes_) node->stop_now(why);
}

void Process::turn() {
  for (auto& node : nodes_) node->turn();
  if (!companions_stopped_ && std::ranges::all_of(nodes_, [this](const auto& node) {
        return node->ended() || is_companion(*node);
      })) {
    companions_stopped_ = true;
    for (auto& node : nodes_) node->stop();
  }
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    if (nodes_[i]->ended() && !end_reported_[i]) report_end(i);
  }
  const auto quiet = [](const auto& transport) { return transport->closing() == 0; };
  const bool all_ended = std::ranges::find(end_reported_, false) == end_reported_.end();
  if (all_ended && std::ranges::all_of(transports_, quiet)) loop_.stop();
}

// Where all builder units are in this process, none of them comes back, nor can it be started
// again: the run would wait for ever. A run that has ended is not touched: its record may still
// wait for space on a disk.
void Process::tell_if_no_builder_is_left() {
  if (!has_event_manager()) return;
  std::size_t failed = 0;
  std::string why;
  for (const auto& node : nodes_) {
    if (node->configured().role != config::Role::builder) continue;
    if (!node->ended() || node->outcome()) return;
    if (failed++ == 0) why = node->outcome().error().text;
  }
  if (failed == system_.builder_units.size()) nodes_.front()->no_builder_left(why);
}

void Process::report_end(std::size_t index) {
  end_reported_[index] = true;
  Node& node = *nodes_[index];
  json::Value message;
  message["report"] = "end";
  message["ok"] = node.outcome().has_value();
  if (!node.outcome()) {
    message["error"] = node.outcome().error().text;
    if (node.too_late()) message["too_late"] = true;
  }
  node.describe(message);
  add_resources(message);
  const bool unable = !message.at("started").boolean(true);
  report(options_.nodes[index], std::move(message));
  if (options_.attended && !has_event_manager() && node.outcome()) {
    log(options_.nodes[index], LogLevel::info, node.end_message());
  }
  node.withdraw();
  // Without a launcher that ends the run.
  if (options_.attended && has_event_manager() && unable) stop();
  if (node.configured().role == config::Role::builder) tell_if_no_builder_is_left();
  if (node.configured().role != config::Role::event_manager) return;
  // Without it the others have nothing to wait for, unless it has told them to finish.
  for (auto& other : nodes_) {
    if (!is_companion(*other)) other->stop();
  }
}

// Of all its nodes together: one timer wakes the loop.
void Process::report_usage() {
  json::Value usage = json::Object{{"report", "usage"}};
  add_usage(usage);
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    if (nodes_[i]->ended()) continue;
    json::Value message = usage;
    message["process"] = name_of_process(options_.nodes[i]);
    nodes_[i]->add_usage(message);
    report(options_.nodes[i], std::move(message));
  }
  usage_tick_.start(loop_, loop_.now() + usage_period);
}

const std::string& Process::name_of_process(std::size_t node) const {
  return std::ranges::find_if(configuration_.processes,
                              [node](const config::Process& process) {
                                return std::ranges::find(process.nodes, node) !=
                                       process.nodes.end();
                              })
      ->name;
}

bool Process::succeeded() const {
  return std::ranges::all_of(nodes_, [](const auto& node) { return node->outcome().has_value(); });
}

std::uint64_t new_session() {
  std::uint64_t session = 0;
  const auto drawn = getrandom(&session, sizeof session, 0);
  FANIN_ASSERT(drawn == sizeof session);
  return session;
}

std::uint64_t new_run_id() { return new_session() >> 11; }

void Process::log(std::size_t node, LogLevel level, std::string_view text) {
  report(node, json::Object{{"report", "log"}, {"level", name(level)}, {"text", text}});
}

void Process::report(std::size_t node, json::Value message) {
  message["node"] = configuration_.nodes[node].name;
  options_.report(message);
}

} // namespace fanin::executive
