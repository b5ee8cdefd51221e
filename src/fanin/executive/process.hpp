// The nodes of one process, on one loop: makes their transports, pools and threads as
// configured, runs them until they have ended, and takes everything down in the right order.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "fanin/base/clock.hpp"
#include "fanin/base/export.hpp"
#include "fanin/base/json.hpp"
#include "fanin/base/log.hpp"
#include "fanin/config/configuration.hpp"
#include "fanin/executive/node.hpp"
#include "fanin/executive/plugins.hpp"
#include "fanin/executive/requests.hpp"
#include "fanin/executive/signals.hpp"
#include "fanin/net/host_resolver.hpp"
#include "fanin/net/loop.hpp"
#include "fanin/net/stream/tcp_streams.hpp"

namespace fanin::executive {

struct ProcessOptions {
  std::vector<std::size_t> nodes; // into the configuration's nodes
  // Each report of a node (report.hpp); on the loop's thread, must not block.
  std::function<void(const json::Value&)> report;
  bool attended = true; // a user has started it, not a launcher: say what signals do
  SignalsFrom signals_from = SignalsFrom::anyone;
  std::uint64_t session = 0; // of this process alone (hello); 0: one is drawn
  TakeRequests requests; // may be empty
  Observer* observer = nullptr; // outlives the process; null: none
};

// Thread: the one that makes it.
class Process {
public:
  // `configuration` and `plugins` outlive it. Pins the calling thread. Errors: usage, exhausted and
  // those of sources and applications.
  [[nodiscard]] FANIN_INTERNAL_API static Result<std::unique_ptr<Process>>
  make(const config::Configuration& configuration, const Plugins& plugins, ProcessOptions options);
  FANIN_INTERNAL_API ~Process();

  // Runs until all its nodes have ended. The first signal ends them in good order, the second one
  // at once. Errors: an address that cannot be listened on.
  [[nodiscard]] FANIN_INTERNAL_API Result<> run();

  // From handlers on the loop, or before run().
  void stop();
  void stop_now(const std::string& why);
  [[nodiscard]] net::Loop& loop() { return loop_; }
  // True if every node ended in good order.
  [[nodiscard]] FANIN_INTERNAL_API bool succeeded() const;

private:
  class Turns;
  Process(const config::Configuration& configuration, const Plugins& plugins,
          ProcessOptions options);
  [[nodiscard]] Result<> make_signals();
  [[nodiscard]] Result<> make_transports();
  [[nodiscard]] Result<> make_pools();
  [[nodiscard]] Result<> make_nodes();
  [[nodiscard]] Result<> start_nodes();
  void report(std::size_t node, json::Value message);
  void log(std::size_t node, LogLevel level, std::string_view text);
  void on_signal(const StopSignal& signal);
  void on_request(Request request);
  void turn();
  void report_end(std::size_t index);
  void report_usage();
  [[nodiscard]] const std::string& name_of_process(std::size_t node) const;
  void tell_if_no_builder_is_left();
  [[nodiscard]] bool has_event_manager() const;
  [[nodiscard]] bool is_companion(const Node& node) const;

  const config::Configuration& configuration_;
  const Plugins& plugins_;
  ProcessOptions options_;
  StopRequests stop_requests_;
  builder::System system_;
  std::vector<NodePlan> plans_;
  MonotonicClock clock_;
  net::Loop loop_;
  net::HostResolver resolver_;
  std::vector<NodePools> pools_; // longer than the transports, which may hold pages
  std::unique_ptr<RunOutput> output_;
  std::vector<std::unique_ptr<Node>> nodes_;
  std::vector<bool> end_reported_;
  std::vector<std::unique_ptr<net::Transport>> transports_;
  net::TransportSet transport_set_;
  net::TcpStreams streams_;
  std::unique_ptr<Turns> turns_;
  std::unique_ptr<Signals> signals_;
  std::unique_ptr<net::Service> requests_;
  net::Timer usage_tick_; // where run control shows the run
  bool companions_stopped_ = false;
};

// A number that no other process has had.
[[nodiscard]] std::uint64_t new_session();
// Likewise, of a run: 53 bits, so that any reader of JSON keeps them. Not 0.
[[nodiscard]] FANIN_INTERNAL_API std::uint64_t new_run_id();

} // namespace fanin::executive
