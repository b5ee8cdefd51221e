#include "fanin/net/connection_state.hpp"

#include <array>

#include <gtest/gtest.h>

#include "fanin/net/close_accounts.hpp"
#include "fanin/net/slot_map.hpp"

namespace fanin::net {
namespace {

constexpr std::array stages{Stage::connecting, Stage::handshake, Stage::open,
                            Stage::closing,    Stage::ended,     Stage::retired};
constexpr auto some_listener = static_cast<ListenerId>(7);

TEST(ConnectionStage, follows_only_those_that_lead_to_it) {
  const auto leads_to = [](Stage from) {
    std::vector<Stage> next;
    for (const Stage to : stages) {
      if (may_follow(from, to)) next.push_back(to);
    }
    return next;
  };
  using enum Stage;
  EXPECT_EQ(leads_to(connecting), (std::vector{handshake, ended, retired}));
  EXPECT_EQ(leads_to(handshake), (std::vector{open, ended, retired}));
  EXPECT_EQ(leads_to(open), (std::vector{closing, ended, retired}));
  EXPECT_EQ(leads_to(closing), std::vector{retired});
  EXPECT_EQ(leads_to(ended), std::vector{retired});
  EXPECT_TRUE(leads_to(retired).empty());
}

TEST(ConnectionStateDeathTest, entering_a_stage_that_does_not_follow_is_an_assertion) {
  ConnectionState state;
  EXPECT_DEATH(state.enter(Stage::open), "may not follow.*Stage");
}

ConnectionState open_state(ListenerId listener) {
  ConnectionState state;
  state.set_listener(listener);
  state.enter(Stage::handshake);
  EXPECT_TRUE(state.setting_up());
  state.enter(Stage::open);
  EXPECT_FALSE(state.setting_up());
  return state;
}

TEST(ConnectionState, is_announced_with_the_event_of_the_side_that_made_it) {
  ConnectionState made = open_state(ListenerId::none);
  ConnectionState accepted = open_state(some_listener);
  EXPECT_EQ(made.announce(), EventKind::connected);
  EXPECT_EQ(accepted.announce(), EventKind::accepted);
}

TEST(ConnectionState, ends_silently_where_the_owner_of_a_listener_knows_nothing_of_it) {
  ConnectionState state = open_state(some_listener);
  EXPECT_TRUE(state.silent());
  (void)state.announce();
  EXPECT_FALSE(state.silent());
  EXPECT_FALSE(ConnectionState().silent()); // who has called connect() waits for an answer
}

TEST(UnknownToOwner, are_connections_of_that_listener_before_their_event_is_handed_out) {
  struct Connection {
    ConnectionState state;
  };
  SlotMap<ConnectionId, Connection> connections;
  const auto make = [&](ListenerId listener, bool announced) {
    const auto [id, connection] = connections.emplace();
    connection.state = open_state(listener);
    if (announced) (void)connection.state.announce();
    return id;
  };
  const ConnectionId fresh = make(some_listener, false);
  (void)make(static_cast<ListenerId>(8), false);
  (void)make(ListenerId::none, false);
  (void)make(some_listener, true);
  const ConnectionId pending = make(some_listener, true);
  struct Nobody final : Handler {
    void on_event(Transport&, Event&) override {}
  } handler;
  const std::array events{
      Event{.kind = EventKind::accepted, .connection = pending, .handler = &handler},
      Event{.kind = EventKind::message, .connection = pending, .handler = &handler}};
  EXPECT_EQ(unknown_to_owner(connections, &Connection::state, some_listener, events),
            (std::vector{fresh, pending}));
}

TEST(CloseAccounts, count_each_end_once) {
  CloseAccounts accounts(nullptr);
  ConnectionState died = open_state(some_listener);
  accounts.end(died, CloseReason::peer_died);
  accounts.close(died); // its owner has seen `closed`
  accounts.close(open_state(some_listener));
  accounts.refuse(CloseReason::version_mismatch);
  EXPECT_EQ(died.stage(), Stage::ended);
  EXPECT_EQ(died.reason(), CloseReason::peer_died);
  EXPECT_EQ(accounts.closed(CloseReason::peer_died), 1U);
  EXPECT_EQ(accounts.closed(CloseReason::local), 1U);
  EXPECT_EQ(accounts.closed(CloseReason::version_mismatch), 1U);
  EXPECT_EQ(accounts.closed(CloseReason::peer_closed), 0U);
}

TEST(CloseAccounts, report_who_and_why) {
  std::string said;
  const CloseAccounts accounts([&](CloseReason, std::string_view text) { said = text; });
  accounts.report(CloseReason::peer_died, "tcp://a:1", "does not answer");
  EXPECT_EQ(said, "tcp://a:1: does not answer");
  CloseAccounts(nullptr).report(CloseReason::peer_died, "a", "nobody hears it");
}

} // namespace
} // namespace fanin::net
