// The production nodes of an event builder in a virtual world: each on a node of its own, with
// pools as planned for it. Nodes die and come back.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "fanin/base/json.hpp"
#include "fanin/base/log.hpp"
#include "fanin/base/result.hpp"
#include "fanin/builder/building/builder_unit.hpp"
#include "fanin/builder/manager/event_manager.hpp"
#include "fanin/builder/readout/readout_unit.hpp"
#include "fanin/config/configuration.hpp"
#include "fanin/executive/memory_plan.hpp"
#include "fanin/executive/node.hpp"
#include "fanin/executive/node_pools.hpp"
#include "fanin/executive/plugins.hpp"
#include "fanin/executive/run_output.hpp"
#include "fanin/net/virtual_world.hpp"

namespace fanin::simulation {

// What the nodes are made from.
struct SystemParts {
  config::Configuration configuration; // all addresses are sim://
  executive::Plugins plugins; // with sim://, and the types of sources
  std::vector<executive::NodePlan> plans; // of each of the configuration's nodes
  executive::RunOutput* output = nullptr; // outlives the nodes
  // Payload has sizes and no bytes: it takes no memory, and is neither filled nor copied.
  bool blank_payload = false;
  std::function<void(const std::string& node, LogLevel level, std::string_view text)> log;
  std::function<void(std::size_t node, const json::Value& report)> report; // may be empty
};

// Thread: that of its world.
class System {
public:
  // A transport sim:// for a configuration, whose messages take `posted` pages of each connection.
  static void add_transport(executive::Plugins& plugins, std::uint32_t posted = 0);

  explicit System(net::VirtualWorld& world);
  // Whoever made the output, and what the log refers to, calls destroy_nodes() before.
  ~System();
  System(const System&) = delete;
  System& operator=(const System&) = delete;

  // Adds a node to the world for each of the configuration's, with its pools. To be called once,
  // before all that follows. Errors: exhausted.
  [[nodiscard]] Result<> make(SystemParts parts);

  void start_event_manager() { start_good(0); }
  void start_readout(std::size_t index) { start_good(configuration().readout_node(index)); }
  void start_builder(std::size_t index) { start_good(configuration().builder_node(index)); }
  // In the configuration's order. Errors: those of nodes, of what their types do not understand.
  [[nodiscard]] Result<> start_all();
  void kill_readout(std::size_t index) { kill(configuration().readout_node(index)); }
  void kill_builder(std::size_t index) { kill(configuration().builder_node(index)); }
  void kill_event_manager() { kill(0); }
  // As a launcher does: its death is seen, and the event manager told.
  void tell_of_death(std::size_t readout);
  void stop() { places_[0]->node->stop(); }
  void destroy_nodes();

  [[nodiscard]] net::VirtualWorld& world() { return world_; }
  [[nodiscard]] const config::Configuration& configuration() const { return parts_.configuration; }
  [[nodiscard]] net::VirtualNode& host(std::size_t node) { return *places_[node]->host; }
  [[nodiscard]] net::VirtualNode& manager_node() { return host(0); }
  [[nodiscard]] net::VirtualNode& readout_node(std::size_t index) {
    return host(configuration().readout_node(index));
  }
  [[nodiscard]] net::VirtualNode& builder_node(std::size_t index) {
    return host(configuration().builder_node(index));
  }
  [[nodiscard]] std::size_t readouts() const { return configuration().readouts(); }
  [[nodiscard]] std::size_t builders() const { return configuration().builders(); }

  [[nodiscard]] builder::EventManager& manager();
  // Null: it is not there.
  [[nodiscard]] builder::ReadoutUnit* readout(std::size_t index);
  [[nodiscard]] builder::BuilderUnit* builder(std::size_t index);
  [[nodiscard]] const Result<>& outcome_of_builder(std::size_t index) const;
  [[nodiscard]] const builder::RunSummary& summary() { return manager().summary(); }
  // Nodes that are there and have ended, without the event manager.
  [[nodiscard]] std::size_t ended_nodes() const;
  // Empty if every page of every node is home (call after the nodes were destroyed).
  [[nodiscard]] std::string check_pools() const;

private:
  class Turns;
  struct Place { // where a node lives, dies, and comes back
    net::VirtualNode* host = nullptr;
    executive::NodePools pools;
    net::TransportSet transports;
    std::uint64_t session = 0; // of its process
    std::unique_ptr<executive::Node> node; // null: it is not there
    std::unique_ptr<Turns> turns; // while the node is there
  };

  [[nodiscard]] Result<> start(std::size_t index);
  void start_good(std::size_t index); // a configuration that was started before
  void kill(std::size_t index);
  [[nodiscard]] executive::NodeContext context(Place& place, std::size_t index);
  static void destroy(Place& place);

  net::VirtualWorld& world_;
  SystemParts parts_;
  std::uint64_t sessions_ = 0;
  std::vector<std::unique_ptr<Place>> places_; // in the order of the configuration's nodes
};

} // namespace fanin::simulation
