#include "fanin/builder/control/greeting.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "fanin/builder/testing/stub_transport.hpp"

namespace fanin::builder {
namespace {

class Greetings : public ::testing::Test {
protected:
  void TearDown() override {
    transport_.sent.clear();
    EXPECT_EQ(pool_->available(), pool_->pages());
  }
  void set(net::Link link, std::uint64_t pages) {
    greeting_.set(link, *pool_, wire::Acknowledge{pages});
  }
  // The numbers in what was sent.
  std::vector<std::uint64_t> sent() {
    std::vector<std::uint64_t> numbers;
    for (const memory::View& page : transport_.sent) {
      EXPECT_TRUE(for_each_message(page.bytes(),
                                   [&](wire::MessageType type, std::span<const std::byte> body) {
                                     wire::Acknowledge message;
                                     wire::MessageReader reader{body};
                                     numbers.push_back(reader.read(message) ? message.received : 0);
                                     return type == wire::MessageType::acknowledge;
                                   }));
    }
    return numbers;
  }
  using Numbers = std::vector<std::uint64_t>;

  std::unique_ptr<memory::PagePool> pool_ =
      memory::PagePool::make(
          {.page_size = 4096, .pages = 1, .arena = {.huge_pages = memory::HugePages::off}})
          .value();
  testing::StubTransport transport_;
  Greeting greeting_;
};

TEST_F(Greetings, is_sent_once_with_all_of_its_parts) {
  const std::string text(1000, 'x');
  greeting_.set(transport_.link(), *pool_, wire::Refuse{.text_size = 1000}, std::string_view{text});
  EXPECT_FALSE(greeting_.sent());
  greeting_.flush();
  EXPECT_TRUE(greeting_.sent());
  greeting_.flush();
  ASSERT_EQ(transport_.sent.size(), 1U);
  EXPECT_TRUE(for_each_message(transport_.sent.front().bytes(),
                               [&](wire::MessageType, std::span<const std::byte> body) {
                                 wire::MessageReader reader{body};
                                 wire::Refuse refuse;
                                 return reader.read(refuse) && reader.text(1000) == text;
                               }));
}

TEST_F(Greetings, waits_for_a_page_and_for_the_link_and_holds_no_page_meanwhile) {
  memory::Loan taken = pool_->take();
  set(transport_.link(), 1);
  greeting_.flush();
  EXPECT_FALSE(greeting_.sent());
  taken.reset();
  transport_.blocked = true;
  greeting_.flush();
  EXPECT_FALSE(greeting_.sent());
  EXPECT_FALSE(greeting_.failed());
  EXPECT_EQ(pool_->available(), 1U);
  transport_.blocked = false;
  greeting_.flush();
  EXPECT_EQ(sent(), Numbers{1});
}

TEST_F(Greetings, takes_the_place_of_one_that_was_not_sent) {
  transport_.blocked = true;
  set(transport_.link(), 1);
  greeting_.flush();
  transport_.blocked = false;
  set(transport_.link(), 2);
  greeting_.flush();
  EXPECT_EQ(sent(), Numbers{2});
}

TEST_F(Greetings, fails_where_the_peer_takes_no_message_of_its_size_until_there_is_another_one) {
  transport_.too_small = true;
  set(transport_.link(), 1);
  greeting_.flush();
  EXPECT_TRUE(greeting_.failed());
  EXPECT_TRUE(greeting_.sent()); // it is not tried again
  transport_.too_small = false;
  greeting_.flush();
  EXPECT_TRUE(sent().empty());
  set(transport_.link(), 2);
  EXPECT_FALSE(greeting_.failed());
  greeting_.flush();
  EXPECT_EQ(sent(), Numbers{2});
}

TEST_F(Greetings, over_a_connection_that_has_ended_waits_for_nothing) {
  set(net::Link{}, 1);
  greeting_.flush();
  EXPECT_TRUE(greeting_.sent());
  EXPECT_FALSE(greeting_.failed());
}

} // namespace
} // namespace fanin::builder
