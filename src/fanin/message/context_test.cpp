// A Context by itself, and what all sockets do with addresses and attempts to connect.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fanin/message/testing/two_ends.hpp"
#include "fanin/net/decorator.hpp"

namespace fanin::message {
namespace {

using namespace std::chrono_literals;
using ::testing::_;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::TwoEnds;

// inproc, with faults that a test asks for.
class Moody final : public net::Decorator {
public:
  Moody() : Decorator("moody", std::make_unique<net::InprocTransport>()) {}
  [[nodiscard]] Result<net::ConnectionId> connect(const net::Url& url,
                                                  const net::ConnectionOptions& options) override {
    if (refuses) return fail(ErrorKind::exhausted, "no descriptor is left");
    return Decorator::connect(url, options);
  }
  [[nodiscard]] std::size_t closing() const override { return left; }
  [[nodiscard]] std::uint64_t given_up() const override { return lost; }
  bool refuses = false;
  std::size_t left = 0; // to deliver
  std::uint64_t lost = 0;
};

class ContextTest : public ::testing::Test {
protected:
  ContextTest() {
    loop.add(transport);
    transports.add("moody+inproc", transport);
  }
  Context make(std::uint64_t seed = 1) {
    return Context(
        ContextParts{loop, transports, *pools.send, *pools.receive, seed,
                     [this](LogLevel, std::string_view text) { said.emplace_back(text); }});
  }
  void turn_until(const std::function<bool()>& done) {
    for (int turns = 0; turns < 10'000'000 && !done(); ++turns) loop.turn();
    ASSERT_TRUE(done());
  }

  const net::Url url = net::Url::parse("moody+inproc://here").value();
  MonotonicClock clock;
  net::Loop loop{clock};
  Moody transport;
  net::TransportSet transports;
  const testing::Pools pools{TwoEnds::small_pages()};
  std::vector<std::string> said;
};

TEST_F(ContextTest, refuses_pools_that_cannot_be) {
  const auto error = [](std::uint32_t send_page, std::uint32_t receive_page) {
    ContextOptions options = TwoEnds::small_pages();
    options.send_pool.page_size = send_page;
    options.receive_pool.page_size = receive_page;
    const auto made = Context::make(options);
    return made ? "" : made.error().text;
  };
  EXPECT_EQ(error(16384, 32768), "");
  EXPECT_THAT(error(16384, 28672), HasSubstr("less than twice"));
  EXPECT_THAT(error(5000, 32768), HasSubstr("multiple of 4 KiB"));
  EXPECT_THAT(error(16384, 40000), HasSubstr("multiple of 4 KiB"));
}

TEST_F(ContextTest, makes_one_transport_of_each_scheme_from_the_registry_it_is_given) {
  int made = 0;
  net::TransportRegistry registry;
  ASSERT_TRUE(registry.add("mine", [&](net::Loop&, const LogFunction&) {
    ++made;
    return Result<std::unique_ptr<net::Transport>>(std::make_unique<net::InprocTransport>());
  }));
  ASSERT_TRUE(registry.add("broken", [](net::Loop&, const LogFunction&) {
    return Result<std::unique_ptr<net::Transport>>(fail(ErrorKind::exhausted, "no device"));
  }));
  const auto one = Context::make(TwoEnds::small_pages(), &registry).value();
  const auto of = [&](const char* text) { return one->transport(net::Url::parse(text).value()); };
  const auto first = of("mine://a");
  ASSERT_TRUE(first);
  EXPECT_EQ(*of("mine://b"), *first);
  EXPECT_EQ(made, 1);
  EXPECT_EQ(of("broken://a").error().text, "no device");
  EXPECT_THAT(of("tcp://127.0.0.1:0").error().text, HasSubstr("no transport for the scheme 'tcp'"));
}

TEST_F(ContextTest, draws_the_times_of_reconnecting_from_its_seed) {
  const auto drawn = [](std::uint64_t seed) {
    ContextOptions options = TwoEnds::small_pages();
    options.seed = seed;
    return Context::make(options).value()->random().next();
  };
  EXPECT_EQ(drawn(5), drawn(5));
  EXPECT_NE(drawn(5), drawn(6));
  EXPECT_NE(drawn(0), drawn(0)); // from the clock
}

TEST_F(ContextTest, does_nothing_in_a_turn_without_work) {
  Context one = make();
  EXPECT_FALSE(one.turn());
}

// At the end of a turn, as often as it wants.
struct Task final : TurnEndTask {
  explicit Task(Context& its) : context(its) {}
  ~Task() override { context.forget(*this); }
  Answer at_turn_end() override {
    ++calls;
    if (leaves) context.forget(*this);
    if (returns) context.at_turn_end(*this);
    return {.stay = stays};
  }
  Context& context;
  int calls = 0;
  bool leaves = false;
  bool returns = false;
  bool stays = false;
};

TEST_F(ContextTest, calls_a_task_once_a_turn_while_it_wants_that) {
  Context one = make();
  Task task(one);
  const auto calls = [&](bool leaves, bool returns, bool stays) {
    task.leaves = leaves;
    task.returns = returns;
    task.stays = stays;
    one.at_turn_end(task);
    one.at_turn_end(task);
    task.calls = 0;
    for (int i = 0; i < 3; ++i) one.turn();
    one.forget(task);
    return task.calls;
  };
  EXPECT_EQ(calls(false, false, false), 1);
  EXPECT_EQ(calls(false, false, true), 3);
  EXPECT_EQ(calls(true, false, true), 1);
  EXPECT_EQ(calls(true, true, false), 3);
  EXPECT_EQ(calls(true, true, true), 3);
}

TEST_F(ContextTest, runs_until_it_is_stopped) {
  Context one = make();
  bool stopped = false;
  net::Timer end{[&] {
    stopped = true;
    one.stop();
  }};
  end.start(loop, clock.now() + 1ms);
  one.run();
  EXPECT_TRUE(stopped);
}

TEST_F(ContextTest, drain_says_whether_everything_was_taken) {
  Context one = make();
  for (int i = 0; i < 2; ++i) ASSERT_TRUE(one.transport(url));
  EXPECT_TRUE(one.drain()); // nothing is left
  std::uint64_t lost = 0;
  for (const bool taken : {true, false, true}) {
    transport.left = 1;
    net::Timer end{[&] {
      transport.left = 0;
      transport.lost += taken ? 0 : 1;
    }};
    end.start(loop, clock.now() + 1ms);
    EXPECT_EQ(one.drain(), taken);
    lost += taken ? 0 : 1;
    EXPECT_EQ(one.given_up(), lost); // each transport counts once
  }
  transport.left = 1;
  net::Timer stop{[&] { one.stop(); }};
  stop.start(loop, clock.now() + 1ms);
  EXPECT_FALSE(one.drain());
}

TEST_F(ContextTest, an_address_that_cannot_be_used_is_an_error_of_every_socket) {
  Context one = make();
  const auto ready = [](Message&) {};
  const auto sockets = [&](const net::Url& at) {
    const auto subscriber = Subscriber::make(one, {.on_message = ready});
    std::vector<ErrorKind> kinds;
    const auto note = [&](const auto& result) {
      kinds.push_back(result ? ErrorKind::internal : result.error().kind);
    };
    note(LowLatencyReceiver::listen(one, at, {.on_message = ready}));
    note(HighThroughputReceiver::listen(one, at, {}));
    note(Publisher::listen(one, at, {}));
    note(LowLatencySender::connect(one, at));
    note(HighThroughputSender::connect(one, at));
    note(subscriber->subscribe(at, 1, Mode::low_latency));
    return kinds;
  };
  EXPECT_EQ(sockets(net::Url::parse("nosuch://here").value()),
            std::vector(6, ErrorKind::unsupported));
  const auto there = LowLatencyReceiver::listen(one, url, {.on_message = ready});
  ASSERT_TRUE(there);
  transport.refuses = true;
  const auto taken = sockets((*there)->url());
  EXPECT_EQ(taken, (std::vector{ErrorKind::refused, ErrorKind::refused, ErrorKind::refused,
                                ErrorKind::exhausted, ErrorKind::exhausted, ErrorKind::exhausted}));
}

// As a forwarder does that cannot send on.
TEST_F(ContextTest, a_receiver_that_reads_nothing_lets_the_loop_sleep_and_is_asked_again) {
  Context one = make();
  bool reads = false;
  int asked = 0;
  Message message;
  std::unique_ptr<HighThroughputReceiver> receiver;
  receiver = HighThroughputReceiver::listen(one, url,
                                            {.on_ready =
                                                 [&] {
                                                   ++asked;
                                                   while (reads && receiver->recv(message)) {
                                                   }
                                                 }})
                 .value();
  const auto sender = HighThroughputSender::connect(one, url).value();
  turn_until([&] { return sender->connected(); });
  const std::byte bytes[100]{};
  ASSERT_EQ(sender->send(bytes), net::SendOutcome::accepted);
  turn_until([&] { return asked > 0; });
  turn_until([&] { return !loop.turn(); });
  const int before = asked;
  EXPECT_FALSE(loop.turn());
  EXPECT_GT(asked, before);
  reads = true;
  EXPECT_TRUE(loop.turn());
  EXPECT_EQ(receiver->counters().messages, 1U);
}

TEST_F(ContextTest, what_the_network_knows_of_the_cause_is_said) {
  ContextOptions options = TwoEnds::small_pages();
  options.log = [this](LogLevel level, std::string_view text) {
    if (level == LogLevel::warning) said.emplace_back(text);
  };
  const auto one = Context::make(options).value();
  const auto listen = [&](const char* at) {
    return LowLatencyReceiver::listen(*one, net::Url::parse(at).value(),
                                      {.on_message = [](Message&) {}});
  };
  const net::Url there = listen("tcp://127.0.0.1").value()->url(); // nobody any more
  const auto sender = LowLatencySender::connect(*one, there).value();
  while (said.empty()) one->turn();
  EXPECT_THAT(said.front(), HasSubstr(there.text() + ": no connection: "));
  EXPECT_THAT(said.front(), HasSubstr("refused"));
}

#if FANIN_HAVE_OFI
// A listener with so many pages, and peers that come one after the other.
class PagesInAdvance : public ::testing::Test {
protected:
  explicit PagesInAdvance(std::uint32_t pages = 16) {
    ContextOptions options = TwoEnds::small_pages();
    options.receive_pool.pages = pages;
    options.log = [this](LogLevel, std::string_view text) { listener_said += text; };
    here = Context::make(options).value();
    options.receive_pool.pages = 64;
    options.log = [this](LogLevel, std::string_view text) { peers_said += text; };
    there = Context::make(options).value();
    receiver =
        HighThroughputReceiver::listen(*here, net::Url::parse("ofi+tcp://127.0.0.1").value(), {})
            .value();
  }
  bool until(const std::function<bool()>& done) const {
    for (int turns = 0; turns < 1'000'000 && !done(); ++turns) {
      here->turn();
      there->turn();
    }
    return done();
  }
  HighThroughputSender& add() {
    return *senders.emplace_back(
        HighThroughputSender::connect(*there, receiver->url(),
                                      {.reconnect = {.initial = 1ms, .max = 10ms}})
            .value());
  }

  std::string listener_said;
  std::string peers_said;
  std::unique_ptr<Context> here;
  std::unique_ptr<Context> there;
  std::unique_ptr<HighThroughputReceiver> receiver;
  std::vector<std::unique_ptr<HighThroughputSender>> senders;
};

TEST_F(PagesInAdvance, a_listener_says_why_there_is_no_room_for_one_more_peer) {
  for (int i = 0; i < 8; ++i)
    ASSERT_TRUE(until([&, &sender = add()] { return sender.connected(); }));
  HighThroughputSender& further = add();
  ASSERT_TRUE(until([&] { return !peers_said.empty(); }));
  EXPECT_THAT(listener_said, HasSubstr("8 connections keep the 16 pages of the receive pool"));
  EXPECT_THAT(listener_said, HasSubstr("ContextOptions::receive_pool"));
  EXPECT_THAT(peers_said, HasSubstr("no room for this connection; its log says why"));
  EXPECT_FALSE(further.connected());
  senders.erase(senders.begin());
  EXPECT_TRUE(until([&] { return further.connected(); }));
}

class EnoughPages : public PagesInAdvance {
protected:
  EnoughPages() : PagesInAdvance(2 * 20 + 8) {}
};

TEST_F(EnoughPages, a_pool_of_two_pages_for_each_peer_and_eight_more_has_room_for_all) {
  for (int i = 0; i < 20; ++i) add();
  const auto connected = [](const auto& sender) { return sender->connected(); };
  EXPECT_TRUE(until([&] { return std::ranges::all_of(senders, connected); }));
  EXPECT_EQ(listener_said + peers_said, "");
}
#endif

TEST_F(ContextTest, an_attempt_that_cannot_be_made_is_tried_again_and_said_once) {
  Context one = make();
  const auto sender =
      LowLatencySender::connect(one, url, {.reconnect = {.initial = 1us, .max = 10us}}).value();
  const auto& failed =
      sender->counters().closed[static_cast<std::size_t>(CloseReason::unreachable)];
  turn_until([&] { return failed == 2; });
  EXPECT_EQ(said, std::vector<std::string>{url.text() + ": no connection: nobody listens there, or "
                                                        "nobody answers; trying again"});
  transport.refuses = true;
  turn_until([&] { return failed >= 4 && said.size() > 1; });
  EXPECT_EQ(said.size(), 2U);
  EXPECT_EQ(said[1], url.text() + ": no connection: no descriptor is left; trying again");
  transport.refuses = false;
  auto receiver = LowLatencyReceiver::listen(one, url, {.on_message = [](Message&) {}});
  turn_until([&] { return sender->connected(); });
  EXPECT_EQ(said.back(), url.text() + ": connected");
  receiver->reset();
  turn_until([&] { return !sender->connected(); });
  turn_until([&] { return failed >= 6; });
  EXPECT_EQ(std::ranges::count(said, url.text() + ": connected"), 1);
  EXPECT_THAT(said,
              ElementsAre(_, _, _, url.text() + ": closed by the peer; trying again", said[0]));
}

} // namespace
} // namespace fanin::message
