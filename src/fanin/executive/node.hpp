// One node of an event builder, made from what it is given: by a process its loop, transports and
// files, by a simulation others.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "fanin/base/export.hpp"
#include "fanin/base/json.hpp"
#include "fanin/base/log.hpp"
#include "fanin/base/result.hpp"
#include "fanin/builder/control/node_environment.hpp"
#include "fanin/builder/system.hpp"
#include "fanin/config/configuration.hpp"
#include "fanin/executive/memory_plan.hpp"
#include "fanin/executive/node_pools.hpp"
#include "fanin/executive/observer.hpp"
#include "fanin/executive/plugins.hpp"
#include "fanin/executive/run_output.hpp"
#include "fanin/net/stream/stream.hpp"

namespace fanin::executive {

// What a node is made from; all of it outlives the node.
struct NodeContext {
  const config::Configuration* configuration = nullptr;
  const builder::System* system = nullptr;
  const Plugins* plugins = nullptr;
  const NodePlan* plan = nullptr;
  NodePools* pools = nullptr; // as planned
  std::size_t index = 0; // into the configuration's nodes
  std::vector<net::Url> event_manager; // rails: where it really listens
  bool by_hand = false; // a user has started its process, which is without an event manager
  net::Loop* loop = nullptr;
  std::int64_t unix_ns_at_zero = 0; // as in builder::NodeEnvironment
  std::uint64_t session = 0; // of the process
  std::uint64_t run_id = 0; // random, of the run that an event manager here begins
  net::TransportSet* transports = nullptr;
  net::Streams* streams = nullptr;
  LogFunction log;
  // Takes reports for others: objects with a member "report" (report.hpp).
  std::function<void(json::Value)> report;
  Observer* observer = nullptr; // null: none
  RunOutput* output = nullptr;
};

// Thread: its loop.
class Node {
public:
  virtual ~Node() = default;
  // Of the role that the configuration says. Nothing listens or connects yet. Errors: those of
  // applications, filters and sources.
  [[nodiscard]] FANIN_INTERNAL_API static Result<std::unique_ptr<Node>> make(NodeContext context);

  [[nodiscard]] virtual Result<> start() = 0;
  // The user wants an end. An event manager ends the run in good order; other nodes wait for it,
  // and leave if they have lost it. One that was started by hand and has done nothing yet leaves.
  virtual void stop() = 0;
  // Ends without waiting for anybody.
  virtual void stop_now(const std::string& why) = 0;
  // Nothing is left to do; the outcome is known.
  [[nodiscard]] virtual bool ended() const = 0;
  [[nodiscard]] virtual const Result<>& outcome() const { return outcome_; }
  // It came when the run was ending.
  [[nodiscard]] bool too_late() const { return too_late_; }
  // Adds what only the node itself knows to its last report.
  virtual void describe(json::Value&) {}
  // Adds what only the node itself knows to its report "usage". Between start() and ended().
  virtual void add_usage(json::Value&) const {}
  // It has ended, and that is reported: others must not wait for what it held.
  virtual void withdraw() {}
  // What a user who started just this node is told when it has ended in good order.
  [[nodiscard]] virtual std::string end_message() const { return "has ended"; }
  // Where an event manager can be reached, after start(); empty: this is none.
  [[nodiscard]] virtual std::vector<net::Url> listening() const { return {}; }
  // Before start(), if that is not where the configuration says.
  void set_event_manager(std::vector<net::Url> rails) { context_.event_manager = std::move(rails); }
  // Run control starts the run (config::Run::controlled).
  virtual void start_run() {}
  // The launcher says that the process of this session has died.
  virtual void process_died(std::uint64_t) {}
  // All builder units have failed, the first one for this reason, and none comes back.
  virtual void no_builder_left(const std::string&) {}
  // Called in each turn of the loop.
  virtual void turn() {}

  [[nodiscard]] const config::Node& configured() const {
    return context_.configuration->nodes[context_.index];
  }

protected:
  explicit Node(NodeContext context) : context_(std::move(context)) {}
  [[nodiscard]] builder::NodeEnvironment environment();
  // Logs what interests a user who started just this node.
  void tell_user(std::string_view text) {
    context_.log(context_.by_hand ? LogLevel::info : LogLevel::debug, text);
  }
  // "tcp://10.1.0.1:7000 or tcp://10.2.0.1:7000".
  [[nodiscard]] std::string event_manager_text() const;
  // How the run has ended for a unit. A unit that its launcher started, and that came when the run
  // was ending, has missed nothing. A user who started one by hand is told so.
  [[nodiscard]] Result<> in_order(const Result<>& result, bool joined, bool too_late);
  // It was stopped and has no event manager.
  void leave_at_end(bool joined);

  NodeContext context_;
  Result<> outcome_;

private:
  bool too_late_ = false;
};

} // namespace fanin::executive
