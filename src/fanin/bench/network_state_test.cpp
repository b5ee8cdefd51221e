#include "fanin/bench/network_state.hpp"

#include <gtest/gtest.h>

#include <sstream>

namespace fanin::bench {
namespace {

TEST(NetworkState, segments_that_were_sent_again_are_found_by_name) {
  std::istringstream text("Ip: Forwarding\nIp: 1\nTcp: RtoMin InSegs RetransSegs InErrs\n"
                          "Tcp: 200 1234 56 7\nUdp: InDatagrams\nUdp: 9\n");
  EXPECT_EQ(retransmitted_in(text), 56U);
  for (const char* other : {"", "Tcp: RetransSegs\n", "Tcp: InSegs\nTcp: 5\n"}) {
    std::istringstream none(other);
    EXPECT_EQ(retransmitted_in(none), 0U);
  }
}

TEST(NetworkState, bytes_over_links_are_those_that_come_from_other_hosts) {
  std::istringstream text(
      "Inter-|   Receive                            |  Transmit\n"
      " face |bytes packets errs drop fifo frame compressed multicast|bytes packets errs drop\n"
      "    lo: 900 1 0 0 0 0 0 0 900 1 0 0 0 0 0 0\n"
      " rail0: 500 1 0 0 0 0 0 0 7000 1 0 0 0 0 0 0\n"
      " rail1:100 1 0 0 0 0 0 0 11 1 0 0 0 0 0 0\n eth9:\n");
  EXPECT_EQ(link_bytes_in(text), 600U);
  std::istringstream none("");
  EXPECT_EQ(link_bytes_in(none), 0U);
}

TEST(NetworkState, drops_are_those_of_the_token_buckets) {
  EXPECT_EQ(drops_in(R"([{"kind":"tbf","dev":"bu0.0","drops":3},{"kind":"noqueue","drops":100},
                         {"kind":"tbf","dev":"ru0.0","drops":4}])"),
            7U);
  EXPECT_EQ(drops_in("[]"), 0U);
  EXPECT_FALSE(drops_in("RTNETLINK answers: no"));
}

TEST(NetworkState, a_command_that_cannot_be_run_is_an_error) {
  EXPECT_FALSE(switch_drops({"false"}));
  EXPECT_FALSE(switch_drops({"echo", "it's", "$(no)", "shell", "#"}));
}

} // namespace
} // namespace fanin::bench
