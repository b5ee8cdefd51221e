#include "fanin/builder/control/control_server.hpp"

#include <gtest/gtest.h>

#include <list>

#include "fanin/base/log_limiter.hpp"
#include "fanin/builder/manager/liveness.hpp"
#include "fanin/builder/testing/fake_node.hpp"
#include "fanin/builder/testing/make_system.hpp"

namespace fanin::builder {
namespace {

using namespace std::chrono_literals;
using testing::FakeNode;

constexpr NodeKey ru0{wire::Role::readout_unit, 0};
constexpr NodeKey bu0{wire::Role::builder_unit, 0};

// Notes what it is told, and flushes as an event manager does.
class Notes final : public ControlServer::Nodes, public net::Service {
public:
  std::optional<ControlServer::Refusal> refusal(NodeKey) override {
    if (full) return ControlServer::Refusal{"full", wire::RefusalKind::for_now};
    return {};
  }
  void joined(NodeKey key, const wire::Hello&, std::string rails) override {
    note("joined", key);
    rails_of = std::move(rails);
    server->welcome(key, {.run = 7, .incarnation = ++incarnation});
  }
  void heard(NodeKey) override { ++pages; }
  bool message(NodeKey key, wire::MessageType type, std::span<const std::byte>) override {
    note("message", key);
    return type == wire::MessageType::uncut;
  }
  bool waits_for(NodeKey) override { return patient; }
  void waits(NodeKey key, std::string_view) override { note("waits", key); }
  void resumed(NodeKey key) override { note("resumed", key); }
  void left(NodeKey key, std::string_view why) override {
    note("left", key);
    reason = why;
  }
  bool poll() override {
    server->flush();
    return false;
  }
  void note(const char* what, NodeKey key) {
    seen += fmt::format("{} {}{} ", what, key.is_readout() ? "ru" : "bu", key.node);
  }
  std::string take() { return std::exchange(seen, {}); }

  ControlServer* server = nullptr;
  bool full = false;
  bool patient = true;
  Incarnation incarnation = 0;
  std::size_t pages = 0;
  std::string seen;
  std::string reason;
  std::string rails_of;
};

class Server : public ::testing::Test {
protected:
  Server() {
    transports_.add("sim", node_.transport());
    notes_.server = &server_;
    node_.loop().add(notes_);
    EXPECT_TRUE(server_.start(std::vector{net::Url::parse("sim://evm").value()}));
  }
  void TearDown() override {
    for (auto& peer : peers_) peer.close();
    node_.loop().remove(notes_);
  }
  FakeNode& connect() {
    peers_.emplace_back(world_, fmt::format("peer{}", peers_.size()));
    peers_.back().connect("sim://evm");
    run(1ms);
    return peers_.back();
  }
  wire::Hello hello(NodeKey key, std::uint64_t session) const {
    wire::Hello hello;
    hello.role = key.role;
    hello.node = key.node;
    hello.system_digest = system_.digest();
    hello.session = session;
    return hello;
  }
  FakeNode& join(NodeKey key, std::uint64_t session) {
    FakeNode& peer = connect();
    peer.say_hello(hello(key, session), text(key));
    run(1ms);
    return peer;
  }
  static std::string text(NodeKey key) {
    return key.is_readout() ? fmt::format("ru{}\n", key.node)
                            : fmt::format("bu{}\nsim://data", key.node);
  }
  void run(Duration time) { world_.run_until(world_.now() + time); }

  System system_ = testing::make_system(2, 2);
  net::VirtualWorld world_{1, {}};
  net::VirtualNode& node_ = world_.add_node("evm");
  std::unique_ptr<memory::PagePool> pool_ =
      memory::PagePool::make(
          {.page_size = 16U << 10, .pages = 64, .arena = {.huge_pages = memory::HugePages::off}})
          .value();
  net::TransportSet transports_;
  Notes notes_;
  ControlServer server_{
      system_,
      {.loop = &node_.loop(),
       .transports = &transports_,
       .control_pool = pool_.get(),
       .log = [this](LogLevel level, std::string_view) { lines_ += level > LogLevel::debug; }},
      notes_};
  std::list<FakeNode> peers_;
  std::uint64_t lines_ = 0; // logged
};

TEST_F(Server, node_joins_is_welcomed_and_leaves) {
  FakeNode& peer = join(bu0, 5);
  EXPECT_EQ(notes_.take(), "joined bu0 ");
  EXPECT_EQ(notes_.rails_of, "sim://data");
  EXPECT_TRUE(peer.heard(wire::MessageType::welcome));
  server_.send_to_builders(wire::Finish{});
  ASSERT_TRUE(server_.takes_part(builder_key(0)));
  server_.send(builder_key(0), wire::Finish{});
  run(1ms);
  EXPECT_EQ(peer.all<wire::Finish>().size(), 2U);
  peer.close();
  run(1ms);
  EXPECT_EQ(notes_.take(), "left bu0 "); // a builder unit is not waited for
  EXPECT_FALSE(server_.takes_part(builder_key(0)));
}

TEST_F(Server, hello_that_fits_no_node_is_refused_with_a_reason) {
  auto wrong = [this](auto change, std::string name = "ru0\n") {
    wire::Hello one = hello(ru0, 5);
    change(one);
    FakeNode& peer = connect();
    peer.say_hello(one, name);
    run(1ms);
    EXPECT_TRUE(peer.heard(wire::MessageType::refuse));
    EXPECT_TRUE(peer.closed());
  };
  wrong([](wire::Hello& one) { ++one.version; });
  wrong([](wire::Hello& one) { one.node = 2; });
  wrong([](wire::Hello& one) { one.role = wire::Role::data; });
  wrong([](wire::Hello& one) { ++one.system_digest; });
  wrong([](wire::Hello&) {}, "ru1\n");
  wrong([](wire::Hello& one) { one.role = wire::Role::builder_unit; }, "bu0\n");
  notes_.full = true;
  wrong([](wire::Hello&) {});
  EXPECT_EQ(notes_.take(), "");
}

TEST_F(Server, second_process_of_a_name_waits_for_the_first_one) {
  join(ru0, 5);
  FakeNode& second = join(ru0, 6);
  ASSERT_TRUE(second.heard(wire::MessageType::refuse));
  EXPECT_EQ(second.all<wire::Refuse>().front().kind, wire::RefusalKind::for_now);
  EXPECT_EQ(notes_.take(), "joined ru0 ");
}

TEST_F(Server, readout_unit_is_waited_for_and_goes_on_as_if_nothing_had_been) {
  FakeNode& peer = join(ru0, 5);
  peer.close();
  run(1ms);
  EXPECT_EQ(notes_.take(), "joined ru0 waits ru0 ");
  ASSERT_TRUE(server_.takes_part(readout_key(0)));
  server_.send(readout_key(0), wire::Finish{}); // is kept for it
  EXPECT_LE(server_.end_graces(world_.now()), world_.now() + system_.grace);
  wire::Hello again = hello(ru0, 5);
  again.resumes = notes_.incarnation;
  FakeNode& same = connect();
  same.say_hello(again, text(ru0));
  run(1ms);
  EXPECT_EQ(notes_.take(), "resumed ru0 ");
  EXPECT_TRUE(same.heard(wire::MessageType::resumed));
  EXPECT_TRUE(same.heard(wire::MessageType::finish));
  EXPECT_EQ(server_.end_graces(world_.now()), never);
}

TEST_F(Server, readout_unit_that_does_not_come_back_in_time_is_gone) {
  join(ru0, 5).close();
  run(1ms);
  (void)notes_.take();
  EXPECT_EQ(server_.end_graces(world_.now() + system_.grace), never);
  EXPECT_EQ(notes_.take(), "left ru0 ");
  EXPECT_EQ(notes_.reason, "its connection is lost");
}

TEST_F(Server, readout_unit_whose_process_died_is_not_waited_for) {
  FakeNode& dying = join(ru0, 5);
  server_.process_died(5);
  EXPECT_EQ(notes_.take(), "joined ru0 "); // what it had sent may still come
  dying.close();
  run(1ms);
  EXPECT_EQ(notes_.take(), "left ru0 ");
  join(ru0, 6).close();
  run(1ms);
  server_.process_died(6);
  EXPECT_EQ(notes_.take(), "joined ru0 waits ru0 left ru0 ");
}

TEST_F(Server, another_process_takes_the_place_of_one_that_is_waited_for) {
  join(ru0, 5).close();
  run(1ms);
  (void)notes_.take();
  join(ru0, 6);
  EXPECT_EQ(notes_.take(), "left ru0 joined ru0 ");
}

TEST_F(Server, node_that_was_not_welcomed_is_welcomed_over_its_next_connection) {
  join(ru0, 5).close();
  run(1ms);
  FakeNode& same = join(ru0, 5);
  EXPECT_EQ(notes_.take(), "joined ru0 waits ru0 resumed ru0 ");
  EXPECT_TRUE(same.heard(wire::MessageType::welcome));
  EXPECT_FALSE(same.heard(wire::MessageType::resumed));
}

TEST_F(Server, who_begins_anew_after_it_was_heard_resumes_nothing) {
  FakeNode& heard = join(ru0, 5);
  heard.say(wire::Numbered{1, 0}, std::string_view{});
  heard.say(wire::Uncut{});
  run(1ms);
  heard.close();
  run(1ms);
  join(ru0, 5);
  EXPECT_EQ(notes_.take(), "joined ru0 message ru0 waits ru0 left ru0 joined ru0 ");
  const NodeKey other{wire::Role::readout_unit, 1};
  FakeNode& acknowledges = join(other, 6);
  server_.send(readout_key(1), wire::Finish{});
  run(1ms);
  acknowledges.say(wire::Acknowledge{1});
  run(1ms);
  acknowledges.close();
  run(1ms);
  join(other, 6);
  EXPECT_EQ(notes_.take(), "joined ru1 waits ru1 left ru1 joined ru1 ");
}

TEST_F(Server, only_a_readout_unit_of_this_welcome_resumes) {
  wire::Hello again = hello(ru0, 5);
  join(ru0, 5).close();
  run(1ms);
  again.resumes = notes_.incarnation + 1;
  connect().say_hello(again, text(ru0));
  run(1ms);
  EXPECT_EQ(notes_.take(), "joined ru0 waits ru0 left ru0 joined ru0 ");
  join(bu0, 7);
  again = hello(bu0, 7);
  again.resumes = notes_.incarnation;
  connect().say_hello(again, text(bu0));
  run(1ms);
  EXPECT_EQ(notes_.take(), "joined bu0 left bu0 joined bu0 ");
}

TEST_F(Server, message_that_makes_no_sense_ends_the_connection) {
  FakeNode& peer = join(ru0, 5);
  peer.say(wire::Numbered{1, 0}, std::string_view{});
  peer.say(wire::Clear{0, 1});
  run(1ms);
  EXPECT_EQ(notes_.take(), "joined ru0 message ru0 left ru0 ");
  EXPECT_TRUE(peer.closed());
}

// Anybody who can connect can repeat a hello that was heard.
TEST_F(Server, refused_peers_cause_only_a_few_lines_in_a_second) {
  join(ru0, 5);
  for (int i = 0; i < 20; ++i) EXPECT_TRUE(join(ru0, 6).heard(wire::MessageType::refuse));
  EXPECT_EQ(lines_, LogLimiter::lines_max);
  for (int i = 0; i < 20; ++i) {
    FakeNode& peer = connect();
    peer.say(wire::Clear{0, 1});
    run(1ms);
    EXPECT_TRUE(peer.closed());
  }
  EXPECT_EQ(lines_, LogLimiter::lines_max);
  run(1s);
  join(ru0, 6);
  EXPECT_EQ(lines_, LogLimiter::lines_max + 1);
}

TEST_F(Server, silent_nodes_are_dropped_and_named) {
  join(ru0, 5);
  join(bu0, 6);
  connect(); // never says hello
  EXPECT_TRUE(server_.drop_silent(world_.now() + system_.dead_after - 100ms).empty());
  server_.pass_over(1s, world_.now() + 1s); // a pause counts for nobody
  EXPECT_TRUE(server_.drop_silent(world_.now() + system_.dead_after + 500ms).empty());
  const auto dropped = server_.drop_silent(world_.now() + system_.dead_after + 2s);
  EXPECT_EQ(dropped, (std::vector<NodeKey>{ru0, bu0}));
  EXPECT_EQ(notes_.reason, "no sign of life");
}

TEST_F(Server, nobody_is_judged_by_time_in_which_the_event_manager_did_not_run) {
  DataPaths paths{2, 2, 1s};
  Liveness liveness{server_, paths, 250ms};
  join(ru0, 5);
  const Time begin = world_.now();
  liveness.start(begin);
  paths.readout_up(0, 1, begin);
  paths.builder_up(0, begin);
  paths.failing(0, 0, begin);
  const Duration running = liveness.running_time();

  Time now = begin + 3 * system_.dead_after; // it was stopped meanwhile
  EXPECT_TRUE(liveness.drop_silent(now).empty());
  EXPECT_EQ(liveness.running_time(), running);
  EXPECT_EQ(paths.failing_since(0), now);

  std::vector<NodeKey> dropped;
  const Time judged = now + system_.dead_after;
  for (; dropped.empty() && now < judged + 1s; now += 250ms) dropped = liveness.drop_silent(now);
  EXPECT_EQ(dropped, std::vector<NodeKey>{ru0});
  EXPECT_GE(now, judged);
}

} // namespace
} // namespace fanin::builder
