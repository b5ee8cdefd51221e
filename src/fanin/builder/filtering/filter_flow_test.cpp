// Builder unit's end and filter units together, in virtual time: batches go out, decisions come
// back, and filter units die in between.
#include <gtest/gtest.h>

#include <cstring>
#include <list>
#include <set>
#include <stdexcept>

#include "fanin/builder/filtering/filter_server.hpp"
#include "fanin/builder/filtering/filter_sink.hpp"
#include "fanin/builder/filtering/filter_unit.hpp"
#include "fanin/builder/testing/fake_node.hpp"
#include "fanin/builder/testing/make_system.hpp"
#include "fanin/builder/testing/scripted_sink.hpp"
#include "fanin/net/virtual_world.hpp"
#include "fanin/storage/testing/memory_sink.hpp"
#include "fanin/wire/checksum.hpp"

namespace fanin::builder {
namespace {

using namespace std::chrono_literals;
using storage::SubmitOutcome;

constexpr std::uint32_t fragment_size = 40;

std::unique_ptr<memory::PagePool> make_pool(std::uint32_t pages) {
  return memory::PagePool::make({.page_size = 32U << 10,
                                 .pages = pages,
                                 .arena = {.huge_pages = memory::HugePages::off}})
      .value();
}

bool is_home(const memory::PagePool& pool) { return pool.available() == pool.pages(); }

// Does what a test says, and notes which events it has seen.
class ScriptedFilter final : public Filter {
public:
  explicit ScriptedFilter(std::function<void(const FilterEvent&, Decision&)> script)
      : script_(std::move(script)) {}
  void decide(const FilterEvent& event, Decision& decision) override {
    seen.push_back(event.number);
    script_(event, decision);
  }
  std::vector<EventNumber> seen;

private:
  std::function<void(const FilterEvent&, Decision&)> script_;
};

class FilterFlow : public ::testing::Test {
protected:
  // A filter unit on a node of its own.
  struct Unit {
    Unit(FilterFlow& test, const System& system, const std::string& name,
         std::function<void(const FilterEvent&, Decision&)> script)
        : node(test.world_.add_node(name)), filter(std::move(script)) {
      transports.add("sim", node.transport());
      unit.emplace(system,
                   FilterUnit::Options{.name = name,
                                       .builders = {*net::Url::parse("sim://bu0")},
                                       .filter = &filter,
                                       .receive_pool = pool.get(),
                                       .ahead = 2,
                                       .silence = 500ms,
                                       .on_work = [this](bool works) { working = works; },
                                       .on_failed =
                                           [this](const Error& error) {
                                             failed = error.text;
                                             refused = error.kind == ErrorKind::refused;
                                           }},
                   NodeEnvironment{.loop = &node.loop(),
                                   .transports = &transports,
                                   .control_pool = control.get(),
                                   .log = [&test](LogLevel, std::string_view text) {
                                     test.lines_.emplace_back(text);
                                   }});
      unit->start();
    }
    void kill() {
      unit.reset();
      node.kill();
    }
    std::unique_ptr<memory::PagePool> pool = make_pool(16);
    std::unique_ptr<memory::PagePool> control = make_pool(16);
    net::VirtualNode& node;
    net::TransportSet transports;
    ScriptedFilter filter;
    std::optional<FilterUnit> unit;
    bool working = false;
    std::string failed;
    bool refused = false;
  };

public:
  FilterFlow() {
    system_.streams = {{"physics", 1, {}}, {"monitoring", 1, {2}}};
    transports_.add("sim", node_.transport());
    start_server();
  }
  void start_server(memory::PagePool* shared = nullptr) {
    if (sink_) node_.loop().remove(*sink_);
    sink_.reset();
    server_.emplace(
        system_,
        NodeEnvironment{
            .loop = &node_.loop(),
            .transports = &transports_,
            .control_pool = control_.get(),
            .log = [this](LogLevel, std::string_view text) { lines_.emplace_back(text); }},
        FilterServer::Options{
            .set_aside_after = 100ms,
            .set_aside_max = 1,
            .shared_pool = shared,
            .on_silent = [this](const std::string& name) { silent_.push_back(name); }});
    EXPECT_TRUE(server_->listen(*net::Url::parse("sim://bu0")));
    make_sink();
  }
  ~FilterFlow() override {
    if (sink_) node_.loop().remove(*sink_);
    sink_.reset();
    units_.clear();
    run(10ms);
    server_.reset();
    EXPECT_TRUE(is_home(*pool_));
    EXPECT_TRUE(is_home(*control_));
  }

protected:
  void make_sink() {
    auto inner = std::make_unique<storage::MemorySink>(
        node_.loop(), store_,
        storage::MemorySinkOptions{.sources = {{1, "a", "ru0"}, {2, "b", "ru0"}}});
    sink_ = std::make_unique<FilterSink>(std::move(inner), 7, *server_);
    sink_->on_commit([this](const storage::Committed& done) { committed_.push_back(done); });
    sink_->on_set_aside([this](std::uint64_t ticket) { set_aside_.push_back(ticket); });
    node_.loop().add(*sink_);
  }
  Unit& add_unit(std::function<void(const FilterEvent&, Decision&)> script) {
    return add_unit(system_, std::move(script));
  }
  Unit& add_unit(const System& system, std::function<void(const FilterEvent&, Decision&)> script) {
    units_.emplace_back(*this, system, fmt::format("fu{}", units_.size()), std::move(script));
    run(1ms);
    return units_.back();
  }
  void run(Duration time) { world_.run_until(world_.now() + time); }

  // Two sources, each with its fragments of the batch in one data message.
  storage::BuiltBatch make_batch(EventRange range) {
    storage::BuiltBatch batch;
    batch.ticket = range.first;
    batch.range = range;
    for (const SourceId source : {1U, 2U}) {
      auto page = pool_->take();
      EXPECT_TRUE(page);
      wire::DataBlockHeader header;
      header.batch_first = header.first_event = range.first;
      header.batch_events = header.entries = static_cast<std::uint32_t>(range.count());
      header.source = source;
      header.payload_size = header.entries * fragment_size;
      const auto table = static_cast<std::uint32_t>(header.entries * sizeof(wire::FragmentEntry));
      std::byte* const payload = page.data() + sizeof header + table;
      std::memset(payload, static_cast<int>(source), header.payload_size);
      const wire::FragmentEntry entry{fragment_size, wire::crc32c({payload, fragment_size})};
      for (std::uint32_t i = 0; i < header.entries; ++i)
        std::memcpy(page.data() + sizeof header + i * sizeof entry, &entry, sizeof entry);
      std::memcpy(page.data(), &header, sizeof header);
      wire::seal_data_block({page.data(), sizeof header + table}, true);
      batch.pieces.push_back({.source = source,
                              .range = range,
                              .table = page.freeze(sizeof header, table),
                              .payload = page.freeze(sizeof header + table, header.payload_size)});
    }
    return batch;
  }
  void submit(EventRange range) {
    auto batch = make_batch(range);
    EXPECT_EQ(sink_->submit(batch), SubmitOutcome::accepted);
  }
  // By event number; each is there once.
  std::map<EventNumber, storage::StoredEvent> stored() const {
    std::map<EventNumber, storage::StoredEvent> events;
    for (const auto& event : store_.events)
      EXPECT_TRUE(events.emplace(event.row.event, event).second) << event.row.event;
    return events;
  }
  bool said(std::string_view text) const {
    return std::ranges::any_of(lines_, [&](const auto& line) { return line.contains(text); });
  }

  System system_ = testing::make_system(1, 1, 2);
  System other_system_;
  net::VirtualWorld world_{1, {}};
  net::VirtualNode& node_ = world_.add_node("bu0");
  std::unique_ptr<memory::PagePool> pool_ = make_pool(64);
  std::unique_ptr<memory::PagePool> control_ = make_pool(16);
  net::TransportSet transports_;
  storage::MemoryStore store_;
  std::vector<std::string> lines_;
  std::vector<std::string> silent_;
  std::vector<storage::Committed> committed_;
  std::vector<std::uint64_t> set_aside_;
  std::optional<FilterServer> server_;
  std::unique_ptr<FilterSink> sink_;
  std::list<Unit> units_;
};

void accept_all(const FilterEvent&, Decision& decision) { decision.accept(0); }

TEST_F(FilterFlow, events_are_accepted_rejected_and_masked) {
  add_unit([](const FilterEvent& event, Decision& decision) {
    ASSERT_EQ(event.fragments.size(), 2U);
    EXPECT_EQ(event.find(1)->payload[0], std::byte{1});
    EXPECT_EQ(event.find(2)->payload.size(), fragment_size);
    EXPECT_EQ(event.find(3), nullptr);
    EXPECT_EQ(event.run, 7U);
    if (event.number % 3 == 0) decision.accept(0);
    if (event.number % 3 == 1) decision.accept(1);
    if (event.number % 6 == 0) decision.set_result(std::as_bytes(std::span{&event.number, 1}));
  });
  submit({0, 60});
  submit({60, 63});
  run(100ms);
  const auto events = stored();
  ASSERT_EQ(events.size(), 63U);
  for (const auto& [number, event] : events) {
    const auto kind = number % 3;
    EXPECT_EQ(event.row.streams, kind == 0 ? 1U : kind == 1 ? 2U : 0U);
    EXPECT_EQ(event.row.flags, kind == 2 ? storage::event_rejected : 0U);
    std::vector<SourceId> sources;
    for (const auto& fragment : event.fragments) {
      sources.push_back(fragment.source);
      EXPECT_EQ(fragment.crc32c, wire::crc32c(fragment.bytes));
    }
    std::vector<SourceId> wanted;
    if (kind == 0) wanted = {1, 2};
    if (kind == 1) wanted = {2}; // source 1 is masked
    if (number % 6 == 0) wanted.push_back(storage::filter_source);
    EXPECT_EQ(sources, wanted) << number;
  }
  ASSERT_EQ(committed_.size(), 2U);
  EXPECT_EQ(committed_[0].rejected, 20U);
  EXPECT_EQ(committed_[1].rejected, 1U);
  EXPECT_EQ(committed_[0].undecided, 0U);
}

TEST_F(FilterFlow, what_a_dead_filter_unit_had_goes_to_another_one) {
  auto& first = add_unit(accept_all);
  first.node.freeze();
  for (EventNumber batch = 0; batch < 6; ++batch) submit({10 * batch, 10 * batch + 10});
  run(10ms);
  EXPECT_TRUE(committed_.empty());
  first.kill();
  auto& second = add_unit(accept_all);
  run(100ms);
  EXPECT_EQ(committed_.size(), 6U);
  EXPECT_EQ(stored().size(), 60U);
  EXPECT_EQ(second.filter.seen.size(), 60U);
  EXPECT_TRUE(said("filter unit 'fu0' is gone"));
}

TEST_F(FilterFlow, an_event_that_ends_two_filter_units_goes_unfiltered_to_the_error_stream) {
  const auto script = [](const FilterEvent& event, Decision&) {
    if (event.number == 13) throw std::runtime_error("thirteen");
  };
  std::set<std::string> failed;
  submit({0, 20});
  submit({20, 30});
  for (int i = 0; i < 3; ++i) {
    auto& unit = add_unit(script);
    run(50ms);
    if (!unit.failed.empty()) failed.insert(unit.failed);
  }
  EXPECT_EQ(failed,
            (std::set<std::string>{
                "the filter failed at event 13 of run 7: it threw an exception: thirteen"}));
  const auto events = stored();
  ASSERT_EQ(events.size(), 30U);
  for (const auto& [number, event] : events) {
    EXPECT_EQ(event.row.streams, number == 13 ? storage::error_stream : 0U) << number;
    EXPECT_EQ(event.fragments.size(), number == 13 ? 2U : 0U);
  }
  EXPECT_TRUE(said("it goes unfiltered to the error stream"));
}

TEST_F(FilterFlow, without_a_filter_unit_events_wait_and_the_log_says_so) {
  submit({0, 10});
  run(5s);
  EXPECT_TRUE(committed_.empty());
  EXPECT_TRUE(said("no filter unit is connected"));
  add_unit(accept_all);
  run(100ms);
  EXPECT_EQ(committed_.size(), 1U);
}

TEST_F(FilterFlow, a_frozen_filter_unit_is_given_up) {
  auto& unit = add_unit(accept_all);
  unit.node.freeze();
  submit({0, 10});
  run(2s);
  EXPECT_EQ(silent_, (std::vector<std::string>{"fu0"}));
  add_unit(accept_all);
  run(100ms);
  EXPECT_EQ(stored().size(), 10U);
}

// Those that a filter unit has, as many as there is memory for.
TEST_F(FilterFlow, batches_that_take_long_are_set_aside_once) {
  auto& first = add_unit(accept_all);
  first.node.freeze();
  for (EventNumber batch = 0; batch < 6; ++batch) submit({10 * batch, 10 * batch + 10});
  run(90ms);
  EXPECT_TRUE(set_aside_.empty());
  run(300ms);
  EXPECT_EQ(set_aside_, (std::vector<std::uint64_t>{0}));
  first.kill();
  auto& second = add_unit(accept_all);
  run(100ms);
  EXPECT_EQ(committed_.size(), 6U);
  second.node.freeze();
  submit({100, 110});
  submit({110, 120});
  run(300ms); // the first one has been decided since
  EXPECT_EQ(set_aside_, (std::vector<std::uint64_t>{0, 100}));
  second.node.thaw();
  run(100ms);
  EXPECT_EQ(committed_.size(), 8U);
}

TEST_F(FilterFlow, who_has_to_decide_is_named_until_it_has) {
  EXPECT_EQ(server_->waits_for(), "");
  submit({0, 10});
  EXPECT_EQ(server_->waits_for(), "a filter unit to start");
  auto& first = add_unit(accept_all);
  run(10ms);
  EXPECT_EQ(server_->waits_for(), "");
  first.node.freeze();
  submit({10, 20});
  run(1ms);
  auto& second = add_unit(accept_all);
  second.node.freeze();
  submit({20, 30});
  run(10ms);
  EXPECT_EQ(server_->waits_for(), "filter unit 'fu0' to decide events from 10 on");
  first.node.thaw();
  run(10ms);
  EXPECT_EQ(server_->waits_for(), "filter unit 'fu1' to decide events from 20 on");
  sink_->abandon(); // nobody wants it any more
  EXPECT_EQ(server_->waits_for(), "");
  second.node.thaw();
  run(10ms);
}

TEST_F(FilterFlow, decisions_for_a_sink_that_is_gone_are_forgotten) {
  auto& unit = add_unit(accept_all);
  unit.node.freeze();
  for (EventNumber batch = 0; batch < 4; ++batch) submit({10 * batch, 10 * batch + 10});
  run(10ms);
  sink_->abandon();
  node_.loop().remove(*sink_);
  sink_.reset();
  make_sink();
  submit({100, 110});
  unit.node.thaw();
  run(200ms);
  ASSERT_EQ(committed_.size(), 1U);
  EXPECT_EQ(committed_[0].ticket, 100U);
}

TEST_F(FilterFlow, the_sink_behind_hears_of_the_begin_and_the_end_of_the_run) {
  node_.loop().remove(*sink_);
  testing::Disk disk;
  sink_ = std::make_unique<FilterSink>(std::make_unique<testing::ScriptedSink>(disk), 7, *server_);
  node_.loop().add(*sink_);
  sink_->run_began(0);
  EXPECT_EQ(disk.runs_begun, 1);
  EXPECT_FALSE(disk.run_ended);
  sink_->run_ended();
  EXPECT_TRUE(disk.run_ended);
  node_.loop().remove(*sink_);
  sink_.reset();
}

TEST_F(FilterFlow, a_sink_that_finishes_still_has_everything_decided) {
  for (EventNumber batch = 0; batch < 4; ++batch) submit({10 * batch, 10 * batch + 10});
  sink_->finish();
  run(100ms);
  EXPECT_FALSE(sink_->finished());
  add_unit(accept_all);
  run(100ms);
  EXPECT_TRUE(sink_->finished());
  EXPECT_EQ(committed_.size(), 4U);
}

// Each turn decides more than there are pages for.
TEST_F(FilterFlow, large_results_wait_until_there_is_room_for_them) {
  const std::vector<std::byte> result(filter_result_max, std::byte{5});
  auto& unit = add_unit([&](const FilterEvent&, Decision& decision) {
    decision.accept(0);
    decision.set_result(result);
  });
  const auto left = unit.control->pages() / 4;
  std::vector<memory::Loan> taken;
  while (unit.control->available() > left) taken.push_back(unit.control->take());
  submit({0, 64});
  submit({64, 70});
  run(100ms);
  EXPECT_EQ(unit.failed, "");
  const auto events = stored();
  ASSERT_EQ(events.size(), 70U);
  for (const auto& [number, event] : events) {
    ASSERT_EQ(event.fragments.size(), 3U);
    EXPECT_EQ(event.fragments.back().bytes, result);
  }
}

// Else its death would be taken for that of an earlier event.
TEST_F(FilterFlow, nothing_is_decided_while_the_last_decision_is_unsent) {
  const std::vector<std::byte> result(filter_result_max, std::byte{5});
  auto& unit = add_unit([&](const FilterEvent&, Decision& decision) {
    decision.accept(0);
    decision.set_result(result);
  });
  submit({0, 64});
  submit({64, 128});
  run(20us);
  node_.freeze();
  run(100ms);
  const std::size_t seen = unit.filter.seen.size();
  EXPECT_LT(seen, 128U);
  run(100ms);
  EXPECT_EQ(unit.filter.seen.size(), seen);
  node_.thaw();
  run(100ms);
  EXPECT_EQ(stored().size(), 128U);
  EXPECT_EQ(unit.filter.seen.size(), 128U);
}

// A disk that is full, for instance.
TEST_F(FilterFlow, results_that_are_not_written_hold_filter_units_back) {
  const std::vector<std::byte> result(filter_result_max, std::byte{5});
  auto& unit = add_unit([&](const FilterEvent&, Decision& decision) {
    decision.accept(0);
    decision.set_result(result);
  });
  auto held = server_->result_pages().make(FilterServer::results_max, [](auto) {});
  for (EventNumber batch = 0; batch < 4; ++batch) submit({64 * batch, 64 * batch + 64});
  run(1s);
  EXPECT_TRUE(unit.filter.seen.empty());
  held = {};
  run(100ms);
  EXPECT_EQ(stored().size(), 256U);
}

// The batches lie in memory that only the builder unit can read.
TEST_F(FilterFlow, what_lies_elsewhere_is_copied_into_the_shared_pool_as_there_is_room) {
  const auto shared = make_pool(4);
  start_server(shared.get());
  add_unit(accept_all);
  for (EventNumber batch = 0; batch < 20; ++batch) submit({10 * batch, 10 * batch + 10});
  std::vector<memory::Loan> all;
  while (memory::Loan loan = shared->take()) all.push_back(std::move(loan));
  run(100ms);
  EXPECT_TRUE(committed_.empty());
  all.clear();
  run(1s);
  EXPECT_EQ(stored().size(), 200U);
  EXPECT_TRUE(is_home(*shared));
}

TEST_F(FilterFlow, what_lies_in_the_shared_pool_is_sent_as_it_lies) {
  start_server(pool_.get());
  std::vector<memory::Loan> all;
  add_unit(accept_all);
  submit({0, 10});
  while (memory::Loan loan = pool_->take()) all.push_back(std::move(loan));
  run(100ms);
  EXPECT_EQ(stored().size(), 10U);
}

TEST_F(FilterFlow, two_filter_units_share_the_batches) {
  auto& first = add_unit(accept_all);
  auto& second = add_unit(accept_all);
  for (EventNumber batch = 0; batch < 8; ++batch) submit({8 * batch, 8 * batch + 8});
  run(100ms);
  EXPECT_EQ(committed_.size(), 8U);
  EXPECT_FALSE(first.filter.seen.empty());
  EXPECT_FALSE(second.filter.seen.empty());
}

// It would be refused again.
TEST_F(FilterFlow, a_filter_unit_of_another_configuration_ends_and_says_why) {
  other_system_ = system_;
  other_system_.streams.pop_back();
  auto& unit = add_unit(other_system_, accept_all);
  submit({0, 10});
  run(2s);
  EXPECT_TRUE(unit.refused);
  const auto* const why = "filter unit 'fu0' has another configuration than the builder unit";
  EXPECT_TRUE(unit.failed.contains(why)) << unit.failed;
  EXPECT_EQ(std::ranges::count_if(lines_, [&](const auto& line) { return line.contains(why); }), 2)
      << "one line of each of them";
  add_unit(accept_all);
  run(100ms);
  EXPECT_EQ(stored().size(), 10U);
}

// Sends messages that a correct filter unit does not send.
class FakeFilterUnit final : public net::Handler {
public:
  FakeFilterUnit(net::VirtualWorld& world, const std::string& name) : node_(world.add_node(name)) {
    const auto id = node_.transport().connect(*net::Url::parse("sim://bu0"),
                                              {.receive_pool = pool_.get(), .handler = this});
    link_ = {&node_.transport(), id.value()};
  }
  void on_event(net::Transport&, net::Event& event) override {
    if (event.kind == net::EventKind::closed) closed = true;
  }
  template <class Message>
  void say(const Message& message) {
    auto page = pool_->take();
    std::memcpy(page.data(), &message, sizeof message);
    const auto view = page.freeze(0, sizeof message);
    EXPECT_EQ(link_.send({&view, 1}), net::SendOutcome::accepted);
  }
  bool closed = false;

private:
  std::unique_ptr<memory::PagePool> pool_ = make_pool(8);
  net::VirtualNode& node_;
  net::Link link_;
};

TEST_F(FilterFlow, a_peer_that_says_what_no_filter_unit_does_is_hung_up) {
  wire::FilterHello hello;
  hello.system_digest = system_.digest();
  hello.ahead = 1;
  const auto expect_closed = [&](const char* what,
                                 const std::function<void(FakeFilterUnit&)>& say) {
    static int count = 0;
    FakeFilterUnit unit(world_, fmt::format("unit{}", ++count));
    run(1ms);
    say(unit);
    run(5ms);
    EXPECT_TRUE(unit.closed) << what;
    EXPECT_TRUE(said(what));
    lines_.clear();
  };
  expect_closed("has another configuration", [&](FakeFilterUnit& unit) {
    auto other = hello;
    ++other.system_digest;
    unit.say(other);
  });
  expect_closed("version 2 of the filter protocol, not 1", [&](FakeFilterUnit& unit) {
    auto other = hello;
    other.header.version = wire::filter_version + 1;
    unit.say(other);
  });
  run(2s); // lines are limited
  expect_closed("for no batch", [&](FakeFilterUnit& unit) {
    auto other = hello;
    other.ahead = 0;
    unit.say(other);
  });
  run(2s);
  expect_closed("a batch that it does not have", [&](FakeFilterUnit& unit) {
    unit.say(hello);
    run(1ms);
    struct {
      wire::FilterDecided decided{.count = 1};
      wire::FilterDecision decision;
    } message;
    unit.say(message);
  });
  submit({0, 10});
  run(2s);
  expect_closed("events that are not the next ones", [&](FakeFilterUnit& unit) {
    unit.say(hello);
    run(5ms);
    struct {
      wire::FilterDecided decided{.from = 3, .count = 1};
      wire::FilterDecision decision;
    } message;
    unit.say(message);
  });
  add_unit(accept_all);
  run(100ms);
  EXPECT_EQ(committed_.size(), 1U);
}

TEST_F(FilterFlow, a_peer_that_never_says_hello_is_hung_up) {
  FakeFilterUnit early(world_, "early");
  run(system_.dead_after - 1ms);
  EXPECT_FALSE(early.closed);
  FakeFilterUnit late(world_, "late");
  run(5ms);
  EXPECT_TRUE(early.closed);
  EXPECT_FALSE(late.closed);
  run(system_.dead_after);
  EXPECT_TRUE(late.closed);
  EXPECT_TRUE(said("sent no hello in time"));
}

// Its batch waits there for those of others.
TEST_F(FilterFlow, a_filter_unit_that_says_that_it_lives_is_not_silent) {
  FakeFilterUnit unit(world_, "patient");
  run(1ms);
  wire::FilterHello hello;
  hello.system_digest = system_.digest();
  hello.ahead = 1;
  hello.silence_ms = 500;
  hello.name[0] = 'p';
  unit.say(hello);
  submit({0, 10});
  for (int i = 0; i < 12; ++i) {
    run(250ms);
    unit.say(wire::FilterDecided{});
  }
  EXPECT_TRUE(silent_.empty());
  EXPECT_FALSE(unit.closed);
  run(1s);
  EXPECT_EQ(silent_, (std::vector<std::string>{"p"}));
  EXPECT_TRUE(unit.closed);
  add_unit(accept_all);
  run(100ms);
  EXPECT_EQ(committed_.size(), 1U);
}

} // namespace
} // namespace fanin::builder
