#include "fanin/builder/readout/read_pause.hpp"

#include <gtest/gtest.h>

namespace fanin::builder {
namespace {

using namespace std::chrono_literals;

// A source that gives so many bytes a second, read whenever it may be. Reads in a second.
std::uint64_t reads_at(double bytes_per_s, Duration longest, std::uint64_t* most = nullptr) {
  ReadPause pause{longest};
  constexpr Duration arrival = 10us; // data come so often
  std::uint64_t reads = 0;
  double there = 0;
  for (Time now{1s}; now < Time{2s}; now += arrival) {
    there += bytes_per_s * 10e-6;
    if (now < pause.until() || there < 1) continue;
    const auto bytes = static_cast<std::uint64_t>(there);
    if (most != nullptr) *most = std::max(*most, bytes);
    there -= static_cast<double>(bytes);
    pause.begin(bytes, now);
    ++reads;
  }
  return reads;
}

TEST(ReadPause, reads_a_slow_source_no_more_often_than_its_longest_pause) {
  EXPECT_LE(reads_at(200'000, 6ms), 1000 / 6 + 10);
}

TEST(ReadPause, leaves_no_more_than_a_socket_holds) {
  for (const double bytes_per_s : {1e6, 1e7, 3e7, 1e8, 1e9}) {
    std::uint64_t most = 0;
    (void)reads_at(bytes_per_s, 6ms, &most);
    EXPECT_LE(most, bytes_per_s < 5e8 ? 128U << 10 : 1U << 20) << bytes_per_s;
  }
}

TEST(ReadPause, of_a_source_that_gives_nothing_ends_until_something_comes) {
  ReadPause pause{6ms};
  pause.begin(200, Time{1s});
  pause.begin(0, pause.until());
  const Time end = pause.until();
  pause.begin(0, end);
  EXPECT_EQ(pause.until(), end);
  pause.begin(0, end); // the loop looks again before it waits
  EXPECT_EQ(pause.until(), end);
  pause.begin(200, end + 1h);
  EXPECT_GT(pause.until(), end + 1h);
}

TEST(ReadPause, leaves_a_source_whose_data_are_dropped_alone_half_of_the_time) {
  ReadPause pause{6ms};
  std::uint64_t reads = 0;
  for (Time now{1s}; now < Time{2s}; now += 10us) { // data come so often
    if (now < pause.until()) continue;
    pause.begin(0, now);
    ++reads;
  }
  EXPECT_LE(reads, 55'000);
}

TEST(ReadPause, of_no_length_is_none) {
  ReadPause pause{Duration{0}};
  pause.begin(1, Time{7ms});
  EXPECT_EQ(pause.until(), Time{7ms});
}

TEST(ReadPause, ends_together_with_others) {
  ReadPause first{6ms};
  ReadPause second{6ms};
  for (Time now{1s}; now < Time{1100ms}; now += 1ms) {
    if (first.until() <= now) first.begin(200, now);
    if (second.until() <= now + 300us) second.begin(200, now + 300us);
  }
  EXPECT_EQ(first.until(), second.until());
}

} // namespace
} // namespace fanin::builder
