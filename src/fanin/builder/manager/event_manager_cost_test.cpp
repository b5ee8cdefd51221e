// What a batch costs the event manager. tests/instructions_test.py counts its instructions with
// FANIN_NODES readout units and FANIN_BATCHES batches.
#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>
#include <vector>

#include "fanin/builder/control/control_batcher.hpp"
#include "fanin/builder/manager/event_manager.hpp"
#include "fanin/builder/testing/make_system.hpp"
#include "fanin/net/virtual_world.hpp"

namespace fanin::builder {
namespace {

using namespace std::chrono_literals;

std::uint64_t from_environment(const char* name, std::uint64_t otherwise) {
  const char* const text = std::getenv(name);
  return text != nullptr ? std::strtoull(text, nullptr, 0) : otherwise;
}

// Says what a node says, and hears which batches there are.
class Speaker final : public net::Handler {
public:
  Speaker(net::VirtualWorld& world, memory::PagePool& pool, const std::string& name)
      : node_(world.add_node(name)), pool_(pool) {}
  ~Speaker() override { link_.close(true); }

  void connect() {
    const net::ConnectionOptions options{.receive_pool = &pool_, .handler = this};
    const auto id = node_.transport().connect(net::Url::parse("sim://evm").value(), options);
    ASSERT_TRUE(id);
    link_ = {&node_.transport(), *id};
  }
  void join(const System& system, wire::Role role, NodeId node, const std::string& text) {
    wire::Hello hello;
    hello.role = role;
    hello.node = node;
    hello.system_digest = system.digest();
    hello.capacity = hello.metadata = 1U << 30;
    hello.text_size = static_cast<std::uint32_t>(text.size());
    say(hello, std::string_view{text});
  }
  template <class Body, class... Parts>
  void say(const Body& body, const Parts&... parts) {
    ControlBatcher batcher{link_, pool_};
    batcher.append(body, parts...);
    batcher.flush();
  }
  void on_event(net::Transport&, net::Event& event) override {
    if (event.kind != net::EventKind::message) return;
    (void)for_each_message(event.message.bytes(),
                           [this](wire::MessageType type, std::span<const std::byte> body) {
                             wire::MessageReader reader{body};
                             if (type == wire::MessageType::clear) ++cleared;
                             if (type == wire::MessageType::assign) (void)reader.read(assigned);
                             return true;
                           });
  }
  wire::Assign assigned;
  std::uint64_t cleared = 0;

private:
  net::VirtualNode& node_;
  memory::PagePool& pool_;
  net::Link link_;
};

std::unique_ptr<memory::PagePool> pages_of(std::uint32_t pages) {
  return memory::PagePool::make({.page_size = 16U << 10,
                                 .pages = pages,
                                 .arena = {.huge_pages = memory::HugePages::off}})
      .value();
}

// Each announcement comes in a turn of its own.
TEST(EventManagerCost, is_counted_for_batches_of_many_readout_units) {
  const auto nodes = static_cast<NodeId>(from_environment("FANIN_NODES", 16));
  const std::uint64_t batches = from_environment("FANIN_BATCHES", 2);
  const System system = testing::make_system(nodes, 1);
  const auto manager_pool = pages_of(64 + 8U * nodes);
  const auto pool = pages_of(256 + 8U * nodes);
  net::VirtualWorld world{1, {}};
  net::VirtualNode& manager_node = world.add_node("evm");
  net::TransportSet transports;
  transports.add("sim", manager_node.transport());
  EventManager manager{
      system,
      {.urls = {net::Url::parse("sim://evm").value()}, .on_end = [](const RunSummary&) {}},
      {.loop = &manager_node.loop(),
       .transports = &transports,
       .control_pool = manager_pool.get(),
       .log = [](LogLevel, std::string_view) {}}};
  ASSERT_TRUE(manager.start());
  const auto run = [&] { world.run_until(world.now() + 1ms); };

  Speaker builder{world, *pool, "bu"};
  builder.connect();
  run();
  builder.join(system, wire::Role::builder_unit, 0, "bu0\nsim://data");
  std::vector<std::unique_ptr<Speaker>> readouts;
  for (NodeId i = 0; i < nodes; ++i) {
    readouts.push_back(std::make_unique<Speaker>(world, *pool, fmt::format("node{}", i)));
    readouts.back()->connect();
    run();
    readouts.back()->join(system, wire::Role::readout_unit, i, fmt::format("ru{}\n", i));
    readouts.back()->say(wire::Ready{1});
    run();
    builder.say(wire::Reached{.readout_unit = i, .yes = 1, .incarnation = 1, .connection = 1});
  }
  run();
  ASSERT_TRUE(manager.running());
  for (std::uint64_t batch = 0; batch < batches; ++batch) {
    const EventNumber first = batch * system.batch_events;
    for (auto& readout : readouts) {
      readout->say(wire::Announce{.first = first, .end = first + system.batch_events, .bytes = 10});
    }
    run();
    ASSERT_EQ(builder.assigned.first, first);
    ASSERT_EQ(builder.assigned.events, system.batch_events);
    builder.say(wire::Received{.first = first});
    builder.say(wire::Built{.first = first, .events = system.batch_events});
    run();
    for (auto& readout : readouts) ASSERT_EQ(readout->cleared, batch + 1);
  }
  EXPECT_EQ(manager.summary().events_built, batches * system.batch_events);
}

} // namespace
} // namespace fanin::builder
