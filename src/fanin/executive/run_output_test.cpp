#include "fanin/executive/run_output.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <set>

namespace fanin::executive {
namespace {

TEST(RunOutput, each_sink_of_a_process_is_another_sender) {
  constexpr std::array<std::uint64_t, 4> sessions{0x9e3779b97f4a7c15, 0x243f6a8885a308d2, 6, 0};
  for (const std::uint64_t session : sessions) {
    std::set<std::uint64_t> numbers;
    for (NodeId builder = 0; builder < 3; ++builder) {
      for (std::uint64_t sink = 1; sink <= 20; ++sink) {
        numbers.insert(sender_number(session, builder, sink));
      }
    }
    EXPECT_EQ(numbers.size(), 60U);
    EXPECT_FALSE(numbers.contains(0));
  }
}

} // namespace
} // namespace fanin::executive
