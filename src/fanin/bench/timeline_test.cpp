#include "fanin/bench/timeline.hpp"

#include <filesystem>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace fanin::bench {
namespace {

using ::testing::HasSubstr;

Sample sample_of(std::uint64_t bytes) {
  Sample sample;
  sample.seconds = 2;
  sample.bytes = bytes;
  sample.events = 50;
  sample.processes = {{.name = "ru0", .cpu = 0.5}, {.name = "bu0", .cpu = 0.25}};
  return sample;
}

// Of a host without sensors.
json::Value measured(std::size_t side_load) {
  const std::chrono::seconds duration{4};
  Timeline timeline(
      {.every = std::chrono::seconds{2}, .side_load = side_load, .sensors = "/nowhere"}, duration);
  const Watch watch = timeline.watch();
  EXPECT_EQ(watch.every, std::chrono::seconds{2});
  watch.on_sample(std::chrono::seconds{2}, sample_of(6'000'000));
  watch.on_sample(std::chrono::seconds{4}, sample_of(2'000'000));
  return timeline.report();
}

TEST(Timeline, has_a_row_for_each_moment_and_no_number_for_what_is_not_known) {
  const json::Value timeline = measured(0);
  EXPECT_EQ(timeline_csv(timeline),
            "at_s,bytes_per_s,events_per_s,cpu,side_load_cpu,temperature_c,processor_power_w,"
            "host_power_w\n"
            "2,3000000,25,0.75,0,NA,NA,NA\n"
            "4,1000000,25,0.75,0,NA,NA,NA\n");
  const std::string table = timeline_table(timeline);
  EXPECT_THAT(table, HasSubstr("not available"));
  EXPECT_THAT(table, HasSubstr("temperature_c: not available: no processor"));
  EXPECT_TRUE(timeline.at("side_load_from_s").is_null());
  const std::string svg = to_svg(timeline_plot(timeline, "a title"));
  EXPECT_THAT(svg, HasSubstr("a title"));
  EXPECT_THAT(svg, HasSubstr("not available"));
}

TEST(Timeline, the_side_load_begins_at_its_share_of_the_time_and_ends_with_the_measurement) {
  const json::Value timeline = measured(1);
  EXPECT_EQ(timeline.at("side_load_from_s").real(), 2);
  EXPECT_TRUE(timeline.find("side_load_error") == nullptr) << timeline.dump();
  EXPECT_EQ(timeline.at("moments").list()[0].at("side_load_cpu").real(), 0);
  EXPECT_EQ(timeline_plot(timeline, "").marks.size(), 1U);
}

TEST(Timeline, a_moment_costs_few_system_calls) {
  // /proc/stat, the sensors, and for the sampled processes /proc/PID/status: a few reads each.
  EXPECT_LE(measured(0).at("sampling").at("reads_per_sample").real(), 30);
}

} // namespace
} // namespace fanin::bench
