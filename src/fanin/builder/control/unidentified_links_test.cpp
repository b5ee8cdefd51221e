#include "fanin/builder/control/unidentified_links.hpp"

#include <gtest/gtest.h>

#include <vector>

#include "fanin/builder/testing/stub_transport.hpp"

namespace fanin::builder {
namespace {

using namespace std::chrono_literals;
using Ids = std::vector<std::uint64_t>;

class Unidentified : public ::testing::Test {
protected:
  void add(std::uint64_t id) { links_.add(transport_.link(id)); }
  void remove(std::uint64_t id) { links_.remove(transport_.link(id)); }
  // Those that are given as silent meanwhile.
  Ids after(Duration later) {
    clock_.advance(later);
    loop_.turn();
    return std::exchange(silent_, {});
  }
  VirtualClock clock_;
  net::Loop loop_{clock_};
  testing::StubTransport transport_;
  Ids silent_;
  std::uint64_t follows_ = 0; // is added when one is given
  bool closes_ = false; // all others are closed when one is given
  UnidentifiedLinks links_{loop_, 2s, [this](net::Link link) {
                             silent_.push_back(static_cast<std::uint64_t>(link.id));
                             if (closes_) links_.close_all();
                             if (follows_ != 0) add(std::exchange(follows_, 0));
                           }};
};

TEST_F(Unidentified, each_one_that_says_nothing_is_given_once_at_its_own_deadline) {
  add(1);
  EXPECT_EQ(after(500ms), Ids{});
  add(2);
  add(3);
  EXPECT_EQ(after(1500ms - 1ns), Ids{});
  EXPECT_EQ(after(1ns), Ids{1});
  EXPECT_EQ(after(500ms - 1ns), Ids{});
  EXPECT_EQ(after(1ns), (Ids{2, 3}));
  EXPECT_EQ(after(1h), Ids{});
}

TEST_F(Unidentified, who_has_said_hello_is_not_given_and_the_others_keep_their_time) {
  add(1);
  EXPECT_EQ(after(1s), Ids{});
  add(2);
  remove(1);
  remove(7); // is not here
  EXPECT_EQ(after(1s), Ids{});
  EXPECT_EQ(after(1s), Ids{2});
}

TEST_F(Unidentified, one_that_comes_when_all_others_have_gone_has_its_whole_time) {
  add(1);
  remove(1);
  EXPECT_EQ(after(1s), Ids{});
  add(2);
  EXPECT_EQ(after(1s), Ids{});
  EXPECT_EQ(after(1s), Ids{2});
  add(3);
  EXPECT_EQ(after(2s), Ids{3});
}

TEST_F(Unidentified, one_that_comes_while_another_is_given_has_its_whole_time) {
  add(1);
  follows_ = 2;
  EXPECT_EQ(after(2s), Ids{1});
  EXPECT_EQ(after(2s - 1ns), Ids{});
  EXPECT_EQ(after(1ns), Ids{2});
}

TEST_F(Unidentified, who_is_given_is_not_among_the_others_any_more) {
  add(1);
  EXPECT_EQ(after(1s), Ids{});
  add(2);
  closes_ = true;
  EXPECT_EQ(after(1s), Ids{1});
  EXPECT_EQ(transport_.closed, std::vector{net::ConnectionId{2}});
  EXPECT_EQ(after(1h), Ids{});
}

TEST_F(Unidentified, after_all_were_closed_nobody_is_given) {
  add(1);
  add(2);
  links_.close_all();
  EXPECT_EQ(transport_.closed, (std::vector{net::ConnectionId{1}, net::ConnectionId{2}}));
  EXPECT_EQ(after(1h), Ids{});
  add(3);
  EXPECT_EQ(after(2s), Ids{3});
  EXPECT_EQ(transport_.closed.size(), 2U); // who is given closes
}

} // namespace
} // namespace fanin::builder
