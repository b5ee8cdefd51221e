#include "fanin/net/connection_options.hpp"

#include <gtest/gtest.h>

#include "fanin/net/inproc/inproc.hpp"

namespace fanin::net {
namespace {

class CheckedOptions : public testing::Test {
protected:
  [[nodiscard]] Result<std::uint32_t> max_message(std::uint32_t wanted) const {
    const auto checked =
        checked_options(transport, url, {.receive_pool = pool.get(), .max_message = wanted});
    if (!checked) return std::unexpected(checked.error());
    return checked->max_message;
  }
  Url url = Url::parse("inproc://a:1").value();
  InprocTransport transport;
  std::unique_ptr<memory::PagePool> pool =
      memory::PagePool::make(
          {.page_size = 8192, .pages = 1, .arena = {.huge_pages = memory::HugePages::off}})
          .value();
};

TEST_F(CheckedOptions, allow_messages_of_half_a_page_unless_less_is_wanted) {
  EXPECT_EQ(max_message(0).value(), 4096U);
  EXPECT_EQ(max_message(4096).value(), 4096U);
  EXPECT_EQ(max_message(1).value(), 1U);
}

TEST_F(CheckedOptions, with_messages_over_half_a_page_are_an_error_that_says_the_page_size) {
  const auto refused = max_message(4097);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().kind, ErrorKind::usage);
  EXPECT_NE(refused.error().text.find("inproc://a:1"), std::string::npos) << refused.error().text;
  EXPECT_NE(refused.error().text.find("8 KiB"), std::string::npos) << refused.error().text;
}

TEST_F(CheckedOptions, without_a_receive_pool_are_an_error) {
  EXPECT_EQ(checked_options(transport, url, {}).error().kind, ErrorKind::usage);
}

} // namespace
} // namespace fanin::net
