#include "fanin/net/stream/stream_connector.hpp"

#include <gtest/gtest.h>

#include "fanin/net/virtual_world.hpp"

namespace fanin::net {
namespace {

using namespace std::chrono_literals;

struct Connecting {
  VirtualWorld world{1, {}};
  VirtualNode& one = world.add_node("one");
  VirtualNode& two = world.add_node("two");
  int answers = 0;
  StreamConnector connector{one.loop(), one.streams(), Url::parse("tcp://two:7").value(),
                            [this] { ++answers; }};

  // Whether somebody listens at the address that was tried.
  bool try_once() {
    auto stream = connector.connect();
    EXPECT_TRUE(stream);
    if (!stream || *stream == nullptr) return false;
    world.run_until(world.now() + 1ms);
    std::byte room{};
    const Transfer read = (*stream)->read(std::span(&room, 1));
    return read.outcome == Transfer::Outcome::blocked;
  }
};

TEST(StreamConnector, connects_to_the_address_of_the_name) {
  Connecting test;
  const auto listener =
      test.two.streams()
          .listen(Url::parse("tcp://two:7").value(),
                  test.two.streams().addresses_to_listen(Url::parse("tcp://two:7").value()).value())
          .value();
  EXPECT_TRUE(test.try_once());
  EXPECT_TRUE(listener->has_next());
}

TEST(StreamConnector, asks_again_when_all_addresses_have_failed_and_not_before_there_is_an_answer) {
  Connecting test;
  EXPECT_EQ(test.one.name_service().asked(), 1U);
  test.one.name_service().take(1s);
  EXPECT_FALSE(test.try_once());
  test.connector.failed();
  EXPECT_EQ(test.one.name_service().asked(), 2U);
  EXPECT_FALSE(test.try_once()) << "the address that is known";
  test.connector.failed();
  EXPECT_EQ(test.one.name_service().asked(), 2U);
  test.world.run_until(test.world.now() + 2s);
  EXPECT_EQ(test.answers, 1);
}

TEST(StreamConnector, a_name_that_is_not_known_is_an_error_until_it_is) {
  VirtualWorld world{1, {}};
  VirtualNode& node = world.add_node("node");
  node.name_service().fail(ErrorKind::not_found);
  StreamConnector connector{node.loop(), node.streams(), Url::parse("tcp://node:7").value(), [] {}};
  EXPECT_EQ(connector.connect().error().kind, ErrorKind::not_found);
  node.name_service().fail({});
  connector.failed();
  EXPECT_NE(connector.connect().value(), nullptr);
}

} // namespace
} // namespace fanin::net
