#include "fanin/simulation/system.hpp"

#include <algorithm>
#include <utility>

#include "fanin/base/assert.hpp"
#include "fanin/base/try.hpp"
#include "fanin/executive/builder_node.hpp"
#include "fanin/executive/event_manager_node.hpp"
#include "fanin/executive/readout_node.hpp"

namespace fanin::simulation {

// What a process does in each turn.
class System::Turns final : public net::Service {
public:
  Turns(net::Loop& loop, executive::Node& node) : loop_(loop), node_(node) { loop_.add(*this); }
  ~Turns() override { loop_.remove(*this); }
  bool poll() override {
    node_.turn();
    return false;
  }

private:
  net::Loop& loop_;
  executive::Node& node_;
};

System::System(net::VirtualWorld& world) : world_(world) {}

System::~System() { destroy_nodes(); }

void System::add_transport(executive::Plugins& plugins, std::uint32_t posted) {
  const auto pages = [posted](const net::Url&, std::uint32_t connections) {
    return posted * connections;
  };
  const auto none = [](net::Loop&, const LogFunction&) -> Result<std::unique_ptr<net::Transport>> {
    return fail(ErrorKind::unsupported, "the virtual world has the transports");
  };
  FANIN_ASSERT(plugins.transports.add("sim", none, {.pages = pages}).has_value());
}

Result<> System::make(SystemParts parts) {
  parts_ = std::move(parts);
  for (std::size_t i = 0; i < parts_.configuration.nodes.size(); ++i) {
    auto place = std::make_unique<Place>();
    place->pools = FANIN_TRY(executive::NodePools::make(
        parts_.plans[i], {.huge_pages = memory::HugePages::off, .reserve_only = true},
        parts_.blank_payload));
    place->host = &world_.add_node(parts_.configuration.nodes[i].name);
    places_.push_back(std::move(place));
  }
  return {};
}

executive::NodeContext System::context(Place& place, std::size_t index) {
  place.transports = {};
  place.transports.add("sim", place.host->transport());
  place.session = ++sessions_;
  executive::NodeContext context;
  context.configuration = &parts_.configuration;
  context.system = &parts_.configuration.system;
  context.plugins = &parts_.plugins;
  context.plan = &parts_.plans[index];
  context.pools = &place.pools;
  context.output = parts_.output;
  context.index = index;
  context.event_manager = parts_.configuration.event_manager().urls;
  context.loop = &place.host->loop();
  context.session = place.session;
  context.run_id = 1;
  context.transports = &place.transports;
  context.streams = &place.host->streams();
  context.report = [this, index](const json::Value& report) {
    if (parts_.report) parts_.report(index, report);
  };
  context.log = [this, &place](LogLevel level, std::string_view text) {
    parts_.log(place.host->name(), level, text);
  };
  return context;
}

Result<> System::start(std::size_t index) {
  Place& place = *places_[index];
  destroy(place);
  if (!place.host->alive()) place.host->restart();
  place.node = FANIN_TRY(executive::Node::make(context(place, index)));
  FANIN_TRY(place.node->start());
  place.turns = std::make_unique<Turns>(place.host->loop(), *place.node);
  return {};
}

void System::start_good(std::size_t index) {
  const bool started = start(index).has_value();
  FANIN_ASSERT(started);
}

Result<> System::start_all() {
  for (std::size_t i = 0; i < places_.size(); ++i) FANIN_TRY(start(i));
  return {};
}

void System::kill(std::size_t index) {
  destroy(*places_[index]);
  places_[index]->host->kill();
}

void System::tell_of_death(std::size_t readout) {
  places_[0]->node->process_died(places_[configuration().readout_node(readout)]->session);
}

void System::destroy(Place& place) {
  place.turns.reset();
  place.node.reset();
}

void System::destroy_nodes() {
  for (std::size_t i = 1; i < places_.size(); ++i) destroy(*places_[i]);
  if (!places_.empty()) destroy(*places_[0]);
}

builder::EventManager& System::manager() {
  return static_cast<executive::EventManagerNode&>(*places_[0]->node).manager();
}

builder::ReadoutUnit* System::readout(std::size_t index) {
  executive::Node* const node = places_[configuration().readout_node(index)]->node.get();
  return node == nullptr ? nullptr : static_cast<executive::ReadoutNode*>(node)->unit();
}

builder::BuilderUnit* System::builder(std::size_t index) {
  executive::Node* const node = places_[configuration().builder_node(index)]->node.get();
  return node == nullptr ? nullptr : static_cast<executive::BuilderNode*>(node)->unit();
}

const Result<>& System::outcome_of_builder(std::size_t index) const {
  return places_[configuration().builder_node(index)]->node->outcome();
}

std::size_t System::ended_nodes() const {
  const auto ended = [&](const auto& place) {
    return &place != &places_[0] && place->node && place->node->ended();
  };
  return static_cast<std::size_t>(std::ranges::count_if(places_, ended));
}

std::string System::check_pools() const {
  for (const auto& place : places_) {
    if (!place->pools.all_home()) return place->host->name() + ": pages are not home";
  }
  return {};
}

} // namespace fanin::simulation
