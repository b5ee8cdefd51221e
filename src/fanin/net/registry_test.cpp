#include "fanin/net/registry.hpp"

#include <gtest/gtest.h>

#include "fanin/net/conformance/peer.hpp"
#include "fanin/net/trace/trace.hpp"

namespace fanin::net {
namespace {

TEST(TransportRegistry, finds_what_comes_with_fanin) {
  TransportRegistry registry;
  add_built_in_transports(registry);
  for (const char* const scheme : {"tcp", "inproc", "ofi+tcp", "trace+tcp", "trace+fault+inproc"}) {
    EXPECT_TRUE(registry.find(scheme)) << scheme;
  }
  for (const char* const scheme :
       {"", "pigeon", "ofi", "ofi+", "fault", "fault+", "+tcp", "fault+pigeon", "tcp+trace"}) {
    EXPECT_FALSE(registry.find(scheme)) << scheme;
  }
  EXPECT_EQ(registry.schemes(), (std::vector<std::string>{"tcp", "shm", "verbs", "inproc",
                                                          "ofi+...", "fault+...", "trace+..."}));
  EXPECT_FALSE(registry.add("tcp", nullptr));
}

TEST(TransportRegistry, knows_how_many_pages_a_transport_takes_in_advance) {
  TransportRegistry registry;
  add_built_in_transports(registry);
  ASSERT_TRUE(
      registry.add("pigeon", nullptr, {.pages = [](const Url& url, std::uint32_t connections) {
                     return connections * (url.host == "far" ? 2U : 1U);
                   }}));
  const auto pages = [&](std::string_view url) {
    return registry.pages_in_advance(Url::parse(url).value(), 100);
  };
  EXPECT_EQ(pages("pigeon://near"), 100U);
  EXPECT_EQ(pages("trace+fault+pigeon://far"), 200U);
  EXPECT_EQ(pages("verbs://a:1?share_above=100&posted=3"), 300U + 8);
  EXPECT_EQ(pages("fault+ofi+verbs://a:1?posted=3"), 300U + 8);
  for (const char* const none : {"tcp://a:1", "trace+shm://a", "owl://a", "fault+owl://a"})
    EXPECT_EQ(pages(none), 0U) << none;
}

TEST(TransportRegistry, knows_which_transports_share_memory_as_they_say_themselves) {
  TransportRegistry registry;
  add_built_in_transports(registry);
  const MonotonicClock clock;
  Loop loop(clock);
  for (const char* const scheme : {"tcp", "shm", "inproc", "trace+shm", "fault+tcp"}) {
    const auto made = registry.find(scheme)(loop, {});
    ASSERT_TRUE(made) << made.error().text;
    EXPECT_EQ(registry.shares_memory({.scheme = scheme}), (*made)->shares_memory()) << scheme;
  }
  for (const char* const none : {"verbs", "ofi+shm", "owl", "fault+owl"})
    EXPECT_FALSE(registry.shares_memory({.scheme = none})) << none;
}

TEST(TransportRegistry, makes_a_transport_under_its_decorators) {
  TransportRegistry registry;
  add_built_in_transports(registry);
  conformance::Peer server;
  conformance::Peer client;
  std::vector<std::string> said;
  const MonotonicClock clock;
  Loop loop(clock);
  {
    const auto made = registry.find("trace+fault+tcp")(
        loop, [&](LogLevel, std::string_view text) { said.emplace_back(text); });
    ASSERT_TRUE(made) << made.error().text;
    Transport& transport = **made;
    loop.add(transport);
    const auto url = Url::parse("trace+fault+tcp://127.0.0.1?seed=4&congestion=reno").value();
    const auto listener = transport.listen(url, server.options());
    ASSERT_TRUE(listener) << listener.error().text;
    const Url real = transport.listening_url(*listener);
    EXPECT_EQ(real.text(),
              fmt::format("trace+fault+tcp://127.0.0.1:{}?congestion=reno&seed=4", real.port));
    ASSERT_TRUE(transport.connect(real, client.options()));
    while (server.opened.empty() || client.opened.empty()) loop.turn();
    EXPECT_EQ(client.send(transport, client.opened.front(), 0, 100), SendOutcome::accepted);
    while (server.messages == 0) loop.turn();
    loop.remove(transport);
  }
  ASSERT_FALSE(said.empty());
  EXPECT_TRUE(said.back().starts_with("trace: {\"messages_sent\":1,\"bytes_sent\":100,"))
      << said.back();
}

} // namespace
} // namespace fanin::net
