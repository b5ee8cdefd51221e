#include "fanin/builder/control/control_client.hpp"

#include <gtest/gtest.h>

#include <string>

#include "fanin/builder/testing/scripted_network.hpp"

namespace fanin::builder {
namespace {

using namespace std::chrono_literals;

class Client : public ::testing::Test {
protected:
  void TearDown() override {
    client_.reset();
    EXPECT_EQ(pool_->available(), pool_->pages());
  }
  void start(const std::vector<std::string>& rails = {"sim://evm"}) {
    options_.event_manager.clear();
    for (const std::string& rail : rails)
      options_.event_manager.push_back(net::Url::parse(rail).value());
    options_.hello.role = wire::Role::readout_unit;
    options_.text = "ru0\n";
    options_.on_message = [this](wire::MessageType type, std::span<const std::byte>) {
      if (type == wire::MessageType::clear) return false;
      notes_ += type == wire::MessageType::welcome ? "welcome " : "message ";
      return true;
    };
    options_.on_lost = [this] {
      notes_ += "lost ";
      if (stops_when_lost_) client_->stop();
    };
    options_.on_given_up = [this](const Error& error) {
      notes_ += "given up: " + error.text + " ";
      given_up_ = error.kind;
    };
    client_ = std::make_unique<ControlClient>(
        NodeEnvironment{
            .loop = &loop_,
            .transports = &transports_,
            .control_pool = pool_.get(),
            .log = [this](LogLevel level, std::string_view) { lines_ += level > LogLevel::debug; },
            .session = 77},
        options_);
    client_->start();
  }
  // Starts, connects and is welcome.
  void join() {
    start();
    network_.accept_connection(0);
    network_.say(0, wire::Welcome{.run = 7, .incarnation = 3});
    EXPECT_EQ(take(), "welcome ");
  }
  void run(Duration time) {
    const Time end = clock_.now() + time;
    turn();
    while (loop_.next_deadline() <= end) {
      clock_.advance_to(loop_.next_deadline());
      turn();
    }
    clock_.advance_to(end);
    turn();
  }
  void turn() {
    loop_.turn();
    client_->flush();
    if (nobody_listens_ && network_.size() > 0 && !network_.last().over)
      network_.end(last(), net::CloseReason::connect_failed);
  }
  [[nodiscard]] std::size_t last() const { return network_.size() - 1; }
  wire::Hello hello(std::size_t connection) { return network_.all<wire::Hello>(connection).at(0); }
  void refuse(std::size_t connection, wire::RefusalKind kind) {
    network_.say(connection, wire::Refuse{.text_size = 3, .kind = kind}, std::string_view{"why"});
  }
  std::vector<EventNumber> said(std::size_t connection) {
    std::vector<EventNumber> events;
    for (const auto& message : network_.all<wire::Uncut>(connection))
      events.push_back(message.event);
    return events;
  }
  std::string take() { return std::exchange(notes_, {}); }
  using Events = std::vector<EventNumber>;

  VirtualClock clock_;
  net::Loop loop_{clock_};
  testing::ScriptedNetwork network_;
  net::TransportSet transports_ = [this] {
    clock_.advance(1h);
    net::TransportSet set;
    set.add("sim", network_);
    return set;
  }();
  std::unique_ptr<memory::PagePool> pool_ =
      memory::PagePool::make(
          {.page_size = 4096, .pages = 16, .arena = {.huge_pages = memory::HugePages::off}})
          .value();
  ControlClient::Options options_{.patience = 800ms, .grace = 45ms};
  std::unique_ptr<ControlClient> client_;
  bool nobody_listens_ = false;
  bool stops_when_lost_ = false;
  std::string notes_;
  std::optional<ErrorKind> given_up_;
  std::size_t lines_ = 0;
};

TEST_F(Client, says_hello_when_it_is_connected_and_speaks_when_it_is_welcome) {
  start();
  ASSERT_EQ(network_.size(), 1U);
  EXPECT_FALSE(client_->connected());
  EXPECT_TRUE(network_[0].sent.empty());
  network_.accept_connection(0);
  EXPECT_TRUE(client_->connected());
  EXPECT_EQ(hello(0).session, 77U);
  EXPECT_EQ(hello(0).resumes, 0U);
  EXPECT_EQ(network_.text_after<wire::Hello>(0), "ru0\n");
  network_.say(0, wire::Welcome{.run = 7, .incarnation = 3});
  EXPECT_EQ(take(), "welcome ");
  client_->send(wire::Uncut{5});
  EXPECT_FALSE(client_->sent());
  client_->flush();
  EXPECT_TRUE(client_->sent());
  EXPECT_EQ(said(0), Events{5});
  network_.say(0, wire::Finish{});
  EXPECT_EQ(take(), "message ");
}

TEST_F(Client, waits_for_ever_for_an_event_manager_that_never_was_there) {
  nobody_listens_ = true;
  start();
  run(2min);
  EXPECT_GE(network_.size(), 240U); // the last ones each half a second
  EXPECT_LE(network_.size(), 246U);
  EXPECT_EQ(take(), "");
  EXPECT_EQ(lines_, 0U);
}

TEST_F(Client, goes_on_after_a_loss_as_if_nothing_had_been) {
  join();
  client_->send(wire::Uncut{1});
  client_->flush();
  network_.say(0, wire::Numbered{1, 1}); // and has got the first page
  client_->send(wire::Uncut{2});
  client_->flush();
  network_.end(0);
  EXPECT_FALSE(client_->connected());
  client_->send(wire::Uncut{3}); // waits
  run(10ms);
  ASSERT_EQ(network_.size(), 2U);
  network_.accept_connection(1);
  EXPECT_EQ(hello(1).resumes, 3U);
  EXPECT_EQ(hello(1).received, 1U);
  EXPECT_EQ(said(1), Events{}); // not yet
  network_.say(1, wire::Resumed{1});
  client_->flush();
  EXPECT_EQ(said(1), (Events{2, 3}));
  run(1s);
  EXPECT_EQ(take(), ""); // the grace is over, and nothing was lost
}

TEST_F(Client, conversation_is_over_when_the_grace_is_however_often_it_was_connected) {
  join();
  client_->send(wire::Uncut{1});
  network_.end(0);
  run(10ms);
  network_.accept_connection(1); // is not welcome
  run(10ms);
  network_.end(1);
  run(20ms); // a third attempt follows
  ASSERT_EQ(network_.size(), 3U);
  run(5ms - 1ns);
  EXPECT_EQ(take(), "");
  run(1ns);
  EXPECT_EQ(take(), "lost ");
  network_.accept_connection(2);
  EXPECT_EQ(hello(2).resumes, 0U);
  EXPECT_EQ(hello(2).received, 0U);
  network_.say(2, wire::Welcome{.run = 7, .incarnation = 4});
  client_->flush();
  EXPECT_EQ(said(2), Events{}); // it was for the one before
  run(1s);
  EXPECT_EQ(take(), "welcome ");
}

TEST_F(Client, an_answer_to_a_conversation_that_is_over_meanwhile_begins_none) {
  join();
  network_.end(0);
  run(10ms);
  network_.accept_connection(1);
  EXPECT_EQ(hello(1).resumes, 3U);
  run(35ms);
  EXPECT_EQ(take(), "lost ");
  network_.say(1, wire::Resumed{0});
  EXPECT_TRUE(network_[1].aborted);
  run(1s);
  network_.accept_connection(last());
  EXPECT_EQ(hello(last()).resumes, 0U);
}

TEST_F(Client, without_grace_each_loss_ends_the_conversation_and_the_owner_may_stop_then) {
  options_.grace = 0ms;
  join();
  network_.end(0);
  EXPECT_EQ(take(), "lost ");
  run(10ms);
  network_.accept_connection(1);
  EXPECT_EQ(hello(1).resumes, 0U);
  stops_when_lost_ = true;
  network_.end(1);
  EXPECT_EQ(take(), "lost ");
  run(1h);
  EXPECT_EQ(network_.size(), 2U);
  EXPECT_EQ(take(), "");
}

TEST_F(Client, gives_up_an_event_manager_that_does_not_come_back) {
  join();
  network_.end(0);
  nobody_listens_ = true;
  run(9s);
  EXPECT_EQ(take(), "lost ");
  EXPECT_FALSE(given_up_);
  run(1500ms);
  EXPECT_EQ(given_up_, ErrorKind::disconnected);
  EXPECT_FALSE(client_->too_late());
  const std::size_t attempts = network_.size();
  run(1h);
  EXPECT_EQ(network_.size(), attempts);
  EXPECT_EQ(lines_, 1U); // the loss
}

// The time begins anew with each welcome only.
TEST_F(Client, gives_up_an_event_manager_that_takes_connections_and_does_not_answer) {
  join();
  network_.end(0);
  for (int i = 0; i < 100 && !given_up_; ++i) {
    run(500ms);
    network_.accept_connection(last());
    network_.end(last());
  }
  EXPECT_EQ(given_up_, ErrorKind::disconnected);
  EXPECT_EQ(clock_.now() - Time{} - 1h, 10s);
  EXPECT_EQ(lines_, 1U);
}

TEST_F(Client, who_is_refused_for_good_gives_up_at_once_and_knows_if_it_came_too_late) {
  for (const auto kind : {wire::RefusalKind::for_good, wire::RefusalKind::run_ending}) {
    start();
    network_.accept_connection(last());
    refuse(last(), kind);
    EXPECT_EQ(take(), "given up: why ");
    EXPECT_EQ(given_up_, ErrorKind::refused);
    EXPECT_EQ(client_->too_late(), kind == wire::RefusalKind::run_ending);
    EXPECT_TRUE(network_.last().over);
  }
  run(1h);
  EXPECT_EQ(network_.size(), 2U);
}

TEST_F(Client, who_is_refused_for_now_tries_again_until_it_was_refused_for_too_long) {
  start();
  const auto until = [this](Duration end) {
    for (; clock_.now() < Time{} + 1h + end && !given_up_; run(500ms)) {
      network_.accept_connection(last());
      refuse(last(), wire::RefusalKind::for_now);
      EXPECT_TRUE(network_.last().over);
      EXPECT_FALSE(client_->connected());
    }
  };
  until(9s);
  EXPECT_EQ(network_.size(), 19U);
  EXPECT_EQ(lines_, 1U);
  network_.accept_connection(last());
  network_.say(last(), wire::Welcome{.run = 7, .incarnation = 3});
  EXPECT_EQ(take(), "welcome ");
  network_.end(last());
  run(500ms);
  const Time again = clock_.now();
  until(1h);
  EXPECT_EQ(given_up_, ErrorKind::refused);
  EXPECT_EQ(clock_.now() - again, 10s + 500ms); // the last of them is waited for
}

// Else a node that was refused for now, shortly before the run ended, would wait for ever.
TEST_F(Client, who_is_refused_for_now_gives_up_an_event_manager_that_is_gone_meanwhile) {
  start();
  network_.accept_connection(0);
  refuse(0, wire::RefusalKind::for_now);
  run(500ms);
  network_.end(last(), net::CloseReason::connect_failed);
  run(9s);
  network_.accept_connection(last()); // it is back
  refuse(last(), wire::RefusalKind::for_now);
  nobody_listens_ = true;
  run(10s);
  EXPECT_FALSE(given_up_);
  EXPECT_EQ(lines_, 3U); // refused, and two losses
  run(1s);
  EXPECT_EQ(given_up_, ErrorKind::disconnected);
}

TEST_F(Client, what_follows_a_refusal_in_the_same_page_is_not_heard) {
  start();
  network_.accept_connection(0);
  std::vector<std::byte> page;
  testing::ScriptedNetwork::append(
      page, wire::Refuse{.text_size = 0, .kind = wire::RefusalKind::for_now});
  testing::ScriptedNetwork::append(page, wire::Welcome{.run = 7, .incarnation = 3});
  network_.say_bytes(0, page);
  EXPECT_EQ(take(), "");
  EXPECT_FALSE(client_->connected());
}

TEST_F(Client, messages_that_make_no_sense_end_the_connection_and_not_the_conversation) {
  join();
  struct Nothing {};
  const auto ends = [this](const auto& message, wire::MessageType type = {}) {
    if constexpr (std::is_same_v<decltype(message), const Nothing&>) {
      std::vector<std::byte> page(sizeof(message::FrameHeader));
      (void)put_header(page.data(), type, 0); // no body
      network_.say_bytes(last(), page);
    } else {
      network_.say(last(), message);
    }
    EXPECT_TRUE(network_.last().aborted);
    EXPECT_FALSE(client_->connected());
    run(40ms);
    network_.accept_connection(last());
    EXPECT_EQ(hello(last()).resumes, 3U);
    network_.say(last(), wire::Resumed{0});
    EXPECT_FALSE(network_.last().over);
  };
  ends(wire::Clear{}); // the owner says so
  ends(wire::Resumed{1}); // pages that were not sent
  ends(wire::Acknowledge{1});
  ends(wire::Refuse{.text_size = 100}); // is not there
  ends(wire::Refuse{.kind = wire::RefusalKind{3}});
  for (const auto type : {wire::MessageType::refuse, wire::MessageType::resumed,
                          wire::MessageType::welcome, wire::MessageType::numbered}) {
    ends(Nothing{}, type);
  }
  network_.say_bytes(last(), std::vector<std::byte>(5));
  EXPECT_TRUE(network_.last().aborted);
  EXPECT_EQ(take(), "");
}

TEST_F(Client, nothing_can_be_resumed_before_the_first_welcome) {
  start();
  network_.accept_connection(0);
  network_.say(0, wire::Resumed{0});
  EXPECT_TRUE(network_[0].aborted);
}

TEST_F(Client, tries_again_what_was_possible_and_is_not_for_a_while) {
  join();
  network_.end(0);
  network_.refusal = Error{ErrorKind::exhausted, "no descriptor"};
  run(5s);
  EXPECT_FALSE(given_up_);
  network_.refusal.reset();
  run(500ms);
  EXPECT_EQ(network_.size(), 2U);
}

TEST_F(Client, a_page_that_comes_again_is_heard_once) {
  join();
  std::vector<std::byte> page;
  testing::ScriptedNetwork::append(page, wire::Numbered{1, 0});
  testing::ScriptedNetwork::append(page, wire::Finish{});
  network_.say_bytes(0, page);
  EXPECT_EQ(take(), "message ");
  network_.say_bytes(0, page);
  EXPECT_EQ(take(), "");
  network_.say(0, wire::Finish{}); // has no number
  EXPECT_EQ(take(), "message ");
}

TEST_F(Client, what_was_said_before_it_stops_is_sent_and_nothing_follows) {
  join();
  client_->send(wire::Uncut{1});
  client_->stop();
  EXPECT_EQ(said(0), Events{1});
  EXPECT_TRUE(network_[0].over);
  EXPECT_FALSE(network_[0].aborted);
  EXPECT_EQ(loop_.next_deadline(), never);
  client_->send(wire::Uncut{2});
  client_->stop();
  client_->flush();
  EXPECT_EQ(said(0), Events{1});
  EXPECT_EQ(loop_.next_deadline(), never);
}

TEST_F(Client, stopped_while_it_waits_for_another_attempt_makes_none) {
  join();
  network_.end(0);
  client_->stop();
  EXPECT_EQ(loop_.next_deadline(), never);
}

TEST_F(Client, a_frozen_event_manager_is_left_when_it_owes_an_answer_for_more_than_a_minute) {
  join();
  client_->send(wire::Uncut{1});
  client_->flush();
  run(60s);
  network_.say(0, wire::Acknowledge{1});
  run(1h); // nothing is owed
  EXPECT_EQ(network_.size(), 1U);
  client_->send(wire::Uncut{2});
  run(60s);
  EXPECT_FALSE(network_[0].over);
  run(20s);
  EXPECT_TRUE(network_[0].aborted);
  EXPECT_EQ(network_.size(), 2U);
}

TEST_F(Client, an_event_manager_that_takes_no_message_is_left) {
  join();
  network_[0].too_small = true;
  client_->send(wire::Uncut{1});
  client_->flush();
  EXPECT_TRUE(network_[0].aborted);
  run(10ms);
  EXPECT_EQ(network_.size(), 2U);
}

TEST_F(Client, what_the_network_does_not_take_is_sent_when_it_is_writable) {
  join();
  network_[0].blocked = true;
  client_->send(wire::Uncut{1});
  client_->flush();
  EXPECT_FALSE(client_->sent());
  network_.unblock(0);
  EXPECT_EQ(said(0), Events{1});
}

TEST_F(Client, where_there_can_be_no_event_manager_it_gives_up_unless_one_was_there) {
  start({"tcp://evm"}); // there is no such transport
  EXPECT_EQ(given_up_, ErrorKind::unsupported);
  given_up_.reset();
  start();
  network_.end(last(), net::CloseReason::unknown_host);
  EXPECT_EQ(given_up_, ErrorKind::not_found);
  given_up_.reset();
  start();
  network_.end(last(), net::CloseReason::version_mismatch);
  EXPECT_EQ(given_up_, ErrorKind::refused);
  given_up_.reset();
  start();
  network_.accept_connection(last());
  network_.end(last());
  run(10ms);
  network_.end(last(), net::CloseReason::unknown_host); // for a while
  EXPECT_FALSE(given_up_);
}

// --- rails ---------------------------------------------------------------------------------------

TEST_F(Client, each_attempt_takes_the_next_rail_and_gives_up_where_none_is_possible) {
  start({"sim://a", "tcp://b", "sim://c"});
  EXPECT_EQ(network_[0].url, "sim://a");
  network_.end(0, net::CloseReason::unknown_host);
  run(30ms); // b is impossible, too
  EXPECT_FALSE(given_up_);
  ASSERT_EQ(network_.size(), 2U);
  EXPECT_EQ(network_[1].url, "sim://c");
  network_.end(1, net::CloseReason::connect_failed); // it may come there
  run(40ms);
  ASSERT_EQ(network_.size(), 3U);
  EXPECT_EQ(network_[2].url, "sim://a");
  network_.end(2, net::CloseReason::unknown_host);
  run(240ms);
  ASSERT_EQ(network_.size(), 4U);
  network_.end(3, net::CloseReason::unknown_host); // of the third rail in a row
  EXPECT_EQ(given_up_, ErrorKind::not_found);
}

TEST_F(Client, changes_to_a_rail_that_connects_while_the_one_in_use_is_silent) {
  start({"sim://a", "sim://b"});
  network_.accept_connection(0); // and swallows the hello
  run(700ms);
  EXPECT_EQ(network_.size(), 1U);
  run(100ms);
  ASSERT_EQ(network_.size(), 2U);
  EXPECT_EQ(network_[1].url, "sim://b");
  run(300ms);
  network_.accept_connection(1);
  EXPECT_TRUE(network_[1].sent.empty()); // what was on its way may still come
  run(100ms);
  EXPECT_FALSE(network_[0].over);
  run(100ms);
  EXPECT_TRUE(network_[0].aborted);
  EXPECT_EQ(network_[1].sent.size(), 1U);
  EXPECT_EQ(hello(1).resumes, 0U);
  EXPECT_TRUE(client_->connected());
  run(700ms);
  EXPECT_EQ(network_.size(), 2U); // it has its own patience
  run(100ms);
  ASSERT_EQ(network_.size(), 3U);
  EXPECT_EQ(network_[2].url, "sim://a");
  network_.say(1, wire::Welcome{.run = 7, .incarnation = 3});
  EXPECT_EQ(take(), "welcome ");
}

TEST_F(Client, a_rail_to_which_it_has_changed_is_the_one_in_use) {
  start({"sim://a", "sim://b", "sim://c"});
  run(800ms); // a does not even connect
  network_.accept_connection(1);
  run(200ms);
  EXPECT_TRUE(client_->connected());
  network_.end(1);
  run(10ms);
  EXPECT_EQ(network_.last().url, "sim://c");
  for (int i = 0; i < 5; ++i) { // for a while; an event manager was there
    network_.end(last(), net::CloseReason::unknown_host);
    run(500ms);
  }
  EXPECT_FALSE(given_up_);
}

TEST_F(Client, what_it_has_besides_goes_with_a_connection_that_is_lost_or_not_wanted) {
  start({"sim://a", "sim://b"});
  network_.accept_connection(0);
  run(800ms);
  network_.end(0);
  EXPECT_TRUE(network_[1].aborted);
  run(10ms);
  network_.accept_connection(last());
  run(800ms);
  EXPECT_EQ(network_.open(), 2U);
  client_->stop();
  EXPECT_EQ(network_.open(), 0U);
  EXPECT_EQ(loop_.next_deadline(), never);
}

TEST_F(Client, who_is_refused_for_now_tries_no_other_rail_meanwhile) {
  options_.patience = 200ms;
  start({"sim://a", "sim://b"});
  network_.accept_connection(0);
  refuse(0, wire::RefusalKind::for_now);
  run(499ms);
  EXPECT_EQ(network_.size(), 1U);
  run(1ms);
  EXPECT_EQ(network_.last().url, "sim://a");
}

TEST_F(Client, takes_its_conversation_along_to_another_rail) {
  start({"sim://a", "sim://b"});
  network_.accept_connection(0);
  network_.say(0, wire::Welcome{.run = 7, .incarnation = 3});
  client_->send(wire::Uncut{1});
  client_->flush();
  run(900ms); // the first look sees the welcome
  network_.accept_connection(1);
  run(200ms);
  EXPECT_EQ(hello(1).resumes, 3U);
  network_.say(1, wire::Resumed{0});
  client_->flush();
  EXPECT_EQ(said(1), Events{1});
  EXPECT_EQ(take(), "welcome ");
}

TEST_F(Client, stays_where_it_is_if_the_answer_comes_or_nothing_else_connects) {
  start({"sim://a", "sim://b"});
  network_.accept_connection(0);
  run(800ms);
  network_.accept_connection(1);
  run(100ms);
  network_.say(0, wire::Welcome{.run = 7, .incarnation = 3});
  run(100ms);
  EXPECT_FALSE(network_[0].over);
  EXPECT_TRUE(network_[1].over);
  client_->send(wire::Uncut{1});
  run(10s); // b does not answer
  EXPECT_FALSE(network_[0].over);
  EXPECT_TRUE(network_[1].sent.empty());
}

TEST_F(Client, tries_the_other_rails_in_turn_while_the_one_in_use_is_silent) {
  start({"sim://a", "sim://b", "sim://c"});
  network_.accept_connection(0);
  run(800ms);
  EXPECT_EQ(network_.last().url, "sim://b");
  network_.end(1, net::CloseReason::connect_failed);
  run(100ms);
  EXPECT_EQ(network_.last().url, "sim://c");
  run(800ms);
  EXPECT_EQ(network_.last().url, "sim://c");
  run(100ms); // no answer
  EXPECT_EQ(network_.last().url, "sim://b");
  EXPECT_TRUE(network_[2].aborted);
  EXPECT_EQ(network_.open(), 2U);
}

TEST_F(Client, without_grace_a_change_of_rail_begins_a_new_conversation) {
  options_.grace = 0ms;
  start({"sim://a", "sim://b"});
  network_.accept_connection(0);
  network_.say(0, wire::Welcome{.run = 7, .incarnation = 3});
  client_->send(wire::Uncut{1});
  client_->flush();
  run(900ms); // the first look sees the welcome
  network_.accept_connection(1);
  run(200ms);
  EXPECT_EQ(take(), "welcome lost ");
  EXPECT_EQ(hello(1).resumes, 0U);
}

TEST_F(Client, the_owner_may_stop_when_a_change_of_rail_ends_the_conversation) {
  options_.grace = 0ms;
  stops_when_lost_ = true;
  start({"sim://a", "sim://b"});
  network_.accept_connection(0);
  network_.say(0, wire::Welcome{.run = 7, .incarnation = 3});
  client_->send(wire::Uncut{1});
  client_->flush();
  run(900ms);
  network_.accept_connection(1);
  run(200ms);
  EXPECT_EQ(take(), "welcome lost ");
  EXPECT_TRUE(network_[1].sent.empty());
  EXPECT_EQ(network_.open(), 0U);
  EXPECT_EQ(loop_.next_deadline(), never);
}

} // namespace
} // namespace fanin::builder
