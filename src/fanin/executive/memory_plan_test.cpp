#include "fanin/executive/memory_plan.hpp"

#include <initializer_list>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fanin/base/random.hpp"
#include "fanin/builder/building/builder_unit.hpp"
#include "fanin/executive/describe.hpp"

namespace fanin::executive {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr const char* two_by_one = R"(
[trigger]
rate = "10kHz"
[source]
type = "emulator"
fragment_max = "64KiB"
[[readout]]
source = [{ id = 1, size = "3KiB" }, { id = 2, size = "1KiB" }]
[[readout]]
source = [{ id = 3, type = "hld", address = 1 }, { id = 4, size = "1KiB" }]
[[builder]]
)";

config::Configuration configuration(const std::vector<std::string>& overrides = {}) {
  const auto result = config::parse(two_by_one, "test.toml", overrides);
  if (!result) ADD_FAILURE() << result.error().text;
  return result.value_or(config::Configuration{});
}

Result<std::vector<NodePlan>> plan(const config::Configuration& configuration) {
  net::TransportRegistry transports;
  net::add_built_in_transports(transports);
  return plan_memory(configuration, transports);
}

std::string error_of(const std::vector<std::string>& overrides) {
  const auto plans = plan(configuration(overrides));
  return plans ? "no error" : plans.error().text;
}

TEST(MemoryPlan, a_buffer_is_shared_by_expected_rate_where_that_is_known) {
  const auto plans = plan(configuration());
  ASSERT_TRUE(plans) << plans.error().text;
  ASSERT_EQ(plans->size(), 4U);
  const NodePlan& known = (*plans)[1];
  EXPECT_EQ(known.sources[0].bytes(), 48U << 20);
  EXPECT_EQ(known.sources[1].bytes(), 16U << 20);
  EXPECT_DOUBLE_EQ(known.bytes_per_s, 4096 * 10'000.0);
  const NodePlan& unknown = (*plans)[2]; // nobody knows the sizes in a file
  EXPECT_EQ(unknown.sources[0].bytes(), 30U << 20);
  EXPECT_EQ(unknown.sources[1].bytes(), 33U << 20); // 10 MB/s for 300 ms more
}

TEST(MemoryPlan, what_readers_of_events_may_take_is_counted) {
  const auto plain = plan(configuration());
  const auto shown = plan(configuration({"monitoring.every=10"}));
  ASSERT_TRUE(plain && shown);
  const NodePlan& builder = shown->back();
  EXPECT_EQ(builder.published.bytes(), 16 * ((64U << 10) + 4096));
  EXPECT_EQ(builder.readers.bytes(), 8 * (64U << 10));
  EXPECT_EQ(builder.queues, (16U << 20) + (64U << 20)); // events may be larger than 64 KiB
  EXPECT_EQ(builder.total() - plain->back().total(),
            builder.published.bytes() + builder.readers.bytes() + builder.queues);
  const auto small = plan(configuration({"monitoring.every=10", "source.fragment_max=4KiB"}));
  ASSERT_TRUE(small) << small.error().text;
  EXPECT_EQ(small->back().queues, 16U << 20);
}

TEST(MemoryPlan, a_source_whose_rate_is_known_has_what_it_needs_beside_others) {
  // 500 MB/s for 300 ms are more than half of the buffer.
  const auto plans = plan(configuration(
      {"buffers.readout=190MiB", "buffers.builder=1GiB", "readout.1.source.0.expected=500MB/s"}));
  ASSERT_TRUE(plans) << plans.error().text;
  EXPECT_GE((*plans)[2].sources[0].bytes(), 143U << 20);
  const auto beside = plan(configuration(
      {"buffers.readout=190MiB", "buffers.builder=1GiB", "readout.1.source.1.expected=500MB/s"}));
  ASSERT_TRUE(beside) << beside.error().text;
  const NodePlan& mixed = (*beside)[2]; // the other's rate nobody knows
  EXPECT_GE(mixed.sources[1].bytes(), 143U << 20);
  EXPECT_GE(mixed.sources[0].bytes(), 16U << 20);
  EXPECT_LE(mixed.sources[0].bytes() + mixed.sources[1].bytes(), 190U << 20);
  EXPECT_THAT(error_of({"readout.1.source.1.expected=500MB/s", "buffers.builder=1GiB"}),
              HasSubstr("--set:1: buffers.readout: 64 MiB is too small for \"ru1\": 500 MB/s for "
                        "300 ms (buffers.hold + event.latency) take "));
}

TEST(MemoryPlan, sources_without_a_known_rate_are_named) {
  EXPECT_EQ(unknown_rates(configuration()),
            "the rate of 1 source (0x3) is not known, so it was not checked whether its memory is "
            "enough: set expected");
  EXPECT_EQ(unknown_rates(configuration({"readout.1.source.0.expected=1MB/s"})), "");
}

TEST(MemoryPlan, the_sum_is_that_of_the_pools) {
  const auto plans = plan(configuration());
  ASSERT_TRUE(plans);
  const NodePlan& readout = (*plans)[1];
  EXPECT_EQ(readout.total(), readout.payload() + readout.metadata.bytes() +
                                 readout.control.bytes() + readout.queues);
  EXPECT_EQ(readout.payload(), 64U << 20);
  EXPECT_EQ((*plans)[3].payload(), 256U << 20);
}

TEST(MemoryPlan, what_the_network_holds_ready_comes_on_top) {
  for (const auto& [protocol, connections] : {std::pair{"push", 2U}, std::pair{"pull", 4U}}) {
    const std::string wanted = std::string("network.protocol=") + protocol;
    const auto plain = plan(configuration({wanted}));
    const auto posting = plan(configuration({wanted, "network.url=verbs://10.0.0.1?posted=5"}));
    ASSERT_TRUE(plain && posting);
    const std::uint32_t each = 5;
    const std::uint32_t unidentified = 8;
    EXPECT_EQ((*plain)[3].posted, 0U);
    EXPECT_EQ((*posting)[3].posted, 1 + each * connections + unidentified);
    EXPECT_EQ((*posting)[3].receive.pages, (*plain)[3].receive.pages + (*posting)[3].posted);
    EXPECT_EQ((*posting)[0].control.pages, (*plain)[0].control.pages + 1 + 3 * each + unidentified);
    EXPECT_EQ((*posting)[1].control.pages,
              (*plain)[1].control.pages + 2 + (1 + connections / 2) * each + 2 * unidentified);
  }
}

TEST(MemoryPlan, connections_may_be_there_twice_while_they_move_to_another_rail) {
  const auto planned = [](std::string_view urls) {
    const auto parsed =
        config::parse(fmt::format("{}url = {}\n", two_by_one, urls), "test.toml", {});
    return plan(parsed.value()).value().back();
  };
  EXPECT_EQ(planned(R"("verbs://10.9.0.1?posted=5")").posted, 1 + 2 * 5 + 8);
  EXPECT_EQ(planned(R"(["verbs://10.9.0.1?posted=5", "tcp://10.8.0.1"])").posted,
            1 + 2 * 2 * 5 + 8);
  EXPECT_EQ(planned(R"(["verbs://10.9.0.1?posted=5", "verbs://10.8.0.1?posted=5"])").posted,
            1 + 2 * (2 * 2 * 5 + 8));
}

// Each connection may have begun two pages, and each lane has messages of control.
TEST(MemoryPlan, lanes_over_several_rails_are_connections_of_their_own) {
  const auto planned = [](std::string_view urls) {
    auto parsed = config::parse(fmt::format("{}url = {}\n", two_by_one, urls), "test.toml", {});
    return std::pair{parsed->system.lanes(), plan(parsed.value()).value()};
  };
  const auto [one_lanes, one] = planned(R"("tcp")");
  const auto [lanes, three] = planned(R"(["tcp", "tcp", "tcp"])");
  EXPECT_EQ(one_lanes, 2U);
  EXPECT_EQ(lanes, 4U); // two readout units with two sources each
  EXPECT_EQ(three[1].control.pages, one[1].control.pages + 8);
  EXPECT_EQ(three[3].control.pages, one[3].control.pages + 16);
  EXPECT_EQ(three[3].needed, one[3].needed + (std::uint64_t{4} << 20));
}

TEST(MemoryPlan, a_readout_unit_with_fewer_sources_than_rails_is_named) {
  const auto said = [](std::string_view urls) {
    const auto parsed =
        config::parse(fmt::format("{}url = {}\n", two_by_one, urls), "test.toml", {});
    return describe(parsed.value(), plan(parsed.value()).value());
  };
  EXPECT_THAT(said(R"(["tcp", "tcp", "tcp"])"),
              HasSubstr("rails      2 of 3 at a time, as it has fewer sources than rails"));
  EXPECT_THAT(said(R"(["tcp", "tcp"])"), Not(HasSubstr("fewer sources than rails")));
}

TEST(MemoryPlan, every_source_can_take_its_largest_fragment) {
  const auto plans = plan(configuration({"source.fragment_max=10MiB", "buffers.builder=1GiB"}));
  ASSERT_TRUE(plans) << plans.error().text;
  for (const std::size_t node : {1U, 2U}) {
    for (const PoolPlan& pool : (*plans)[node].sources) {
      EXPECT_GE(pool.bytes() - pool.page_size, 10U << 20);
    }
  }
}

TEST(MemoryPlan, a_builder_unit_can_take_the_largest_event_and_two_batches) {
  const auto c = configuration({"buffers.builder=20MiB", "trigger.rate=10Hz"});
  const auto plans = plan(c);
  ASSERT_TRUE(plans) << plans.error().text;
  const std::uint64_t capacity =
      builder::build_capacity((*plans)[3].receive.pages, c.system.data_page, c.readouts());
  EXPECT_GE(capacity, 2 * c.system.batch_size);
  EXPECT_GE(capacity, 4 * (64U << 10));
}

TEST(MemoryPlan, buffers_that_are_too_small_are_refused_with_the_remedy) {
  EXPECT_EQ(error_of({"buffers.readout=4MiB"}),
            "--set:1: buffers.readout: 4 MiB is too small for \"ru0\": 41 MB/s for 300 ms "
            "(buffers.hold + event.latency) take 11.7 MiB; set it to \"12MiB\", or lower the rate");
  EXPECT_THAT(error_of({"buffers.readout=128KiB", "buffers.hold=1ms", "event.latency=0ms"}),
              HasSubstr("2 sources whose fragments may have 64 KiB need 256 KiB; set it to "
                        "\"256KiB\", or lower fragment_max"));
  EXPECT_THAT(error_of({"buffers.builder=8MiB", "trigger.rate=10Hz"}),
              HasSubstr("buffers.builder: 8 MiB is too small for \"bu0\": two batches (4 MiB) in "
                        "pages of 1 MiB, from 2 readout units, take 12 MiB; set it to \"12MiB\""));
  EXPECT_THAT(error_of({"source.fragment_max=16MiB", "buffers.builder=64MiB"}),
              HasSubstr("the largest possible event (64 MiB)"));
  EXPECT_THAT(
      error_of({"trigger.rate=1MHz", "buffers.readout=8GiB"}),
      HasSubstr("--set:1: buffers.builder: 256 MiB is too small for \"bu0\": 5.12 GB/s for 250 ms "
                "(buffers.hold)"));
}

TEST(MemoryPlan, the_key_that_gives_the_buffer_is_named_where_it_is_written) {
  const auto error = [](const std::string& more) {
    const auto parsed = config::parse(std::string(two_by_one) + more, "test.toml");
    if (!parsed) return parsed.error().text;
    const auto plans = plan(*parsed);
    return plans ? "no error" : plans.error().text;
  };
  EXPECT_THAT(error("buffer = \"4MiB\"\n"), StartsWith("test.toml:12: builder.0.buffer: 4 MiB is"));
  EXPECT_THAT(error("[buffers]\nbuilder = \"4MiB\"\n"),
              StartsWith("test.toml:13: buffers.builder: 4 MiB is"));
  EXPECT_THAT(error_of({"readout.1.buffer=64KiB"}),
              StartsWith("--set:1: readout.1.buffer: 64 KiB is"));
}

// A configuration of any size, and whose buffers are small.
std::string random_configuration(Random& random) {
  const auto one_of = [&random](std::initializer_list<const char*> texts) {
    return *(texts.begin() + static_cast<std::ptrdiff_t>(random.below(texts.size())));
  };
  std::string text = fmt::format(
      "[trigger]\nrate = \"{}Hz\"\n[buffers]\nreadout = \"{}KiB\"\nbuilder = \"{}KiB\"\n"
      "page = \"{}\"\nhold = \"{}ms\"\n[network]\nprotocol = \"{}\"\n[source]\ntype = "
      "\"emulator\"\nfragment_max = \"{}B\"\n",
      1 + random.below(300'000), 1 + random.below(20'000), 1 + random.below(20'000),
      one_of({"64KiB", "128KiB", "1MiB", "4MiB"}), 1 + random.below(2000), one_of({"push", "pull"}),
      1 + random.below(3'000'000));
  for (std::uint64_t left = 1 + random.below(4); left > 0; --left) {
    text += fmt::format("[[readout]]\ncount = {}\n", 1 + random.below(3));
    if (random.below(4) == 0)
      text += fmt::format("buffer = \"{}B\"\n", 1 + random.below(2'000'000));
    for (std::uint64_t sources = 1 + random.below(4); sources > 0; --sources) {
      const bool known = random.below(3) != 0;
      text += fmt::format("[[readout.source]]\ncount = {}\n{} = \"{}\"\n", 1 + random.below(5),
                          known ? "size" : "type", known ? one_of({"1B", "777B", "3KiB"}) : "hld");
    }
  }
  text += fmt::format("[[builder]]\ncount = {}\nurl = {}\n", 1 + random.below(4),
                      one_of({"\"tcp\"", "[\"tcp\", \"tcp\"]", "\"verbs://a?posted=3\""}));
  return text;
}

TEST(MemoryPlan, whoever_follows_the_advice_is_done_with_that_key) {
  const auto seed = static_cast<std::uint64_t>(testing::UnitTest::GetInstance()->random_seed());
  SCOPED_TRACE(fmt::format("seed {}", seed));
  Random random(seed);
  const std::regex advice("^[^ ]+: ([^ ]+): .*; set it to \"([^\"]+)\", or .*");
  for (int i = 0; i < 300; ++i) {
    const std::string text = random_configuration(random);
    std::vector<std::string> overrides;
    std::set<std::string> keys;
    for (;;) {
      const auto parsed = config::parse(text, "test.toml", overrides);
      ASSERT_TRUE(parsed) << parsed.error().text << "\n" << text;
      const auto plans = plan(*parsed);
      if (plans) break;
      std::smatch found;
      ASSERT_TRUE(std::regex_match(plans.error().text, found, advice)) << plans.error().text;
      ASSERT_TRUE(keys.insert(found[1]).second) << plans.error().text << "\n" << text;
      overrides.push_back(fmt::format("{}={}", found[1].str(), found[2].str()));
    }
  }
}

TEST(MemoryPlan, on_several_hosts_the_time_to_notice_a_death_counts) {
  const std::string text = std::string(two_by_one) + "host = \"b\"\n[event_manager]\nhost = \"a\"\n"
                                                     "[network]\ncontrol = \"tcp://a:1\"\n";
  const auto one = config::parse(two_by_one, "test.toml");
  const auto several = config::parse(text, "test.toml", {"readout.*.host=a"});
  ASSERT_TRUE(one && several) << several.error().text;
  EXPECT_EQ(hold_time(*one), std::chrono::milliseconds{300});
  EXPECT_EQ(hold_time(*several), std::chrono::milliseconds{5300});
  const auto plans = plan(*several);
  ASSERT_FALSE(plans);
  EXPECT_THAT(plans.error().text,
              HasSubstr("for 5.3 s (buffers.hold + event.latency + network.dead_after)"));
}

TEST(MemoryPlan, the_time_that_events_wait_for_filters_counts) {
  const auto parse = [](const std::vector<std::string>& overrides) {
    return config::parse(std::string(two_by_one) + "[[filter]]\ntype = \"any\"\nlatency = \"2s\"\n",
                         "test.toml", overrides);
  };
  const auto c = parse({});
  ASSERT_TRUE(c) << c.error().text;
  EXPECT_EQ(filter_latency(*c), std::chrono::seconds{2});
  EXPECT_EQ(hold_time(*c), std::chrono::milliseconds{2300});
  const auto plans = plan(*c);
  ASSERT_FALSE(plans);
  EXPECT_THAT(
      plans.error().text,
      HasSubstr("test.toml:1: buffers.readout: 64 MiB is too small for \"ru0\": 41 MB/s for "
                "2.3 s (buffers.hold + event.latency + filter.latency) take "));
  const auto held = plan(parse({"buffers.readout=256MiB", "buffers.builder=64MiB"}).value());
  ASSERT_FALSE(held);
  EXPECT_THAT(held.error().text, HasSubstr("for 2.25 s (buffers.hold + filter.latency) take "));
  EXPECT_TRUE(plan(parse({"buffers.readout=256MiB"}).value()));
}

TEST(MemoryPlan, all_nodes_have_control_pages_of_one_size_that_all_counters_fit_into) {
  const auto page_of = [](const std::string& text) -> std::uint32_t {
    const auto parsed = config::parse(text, "test.toml");
    if (!parsed) ADD_FAILURE() << parsed.error().text;
    if (!parsed) return 0;
    const auto plans = plan(*parsed);
    if (!plans) ADD_FAILURE() << plans.error().text;
    if (!plans) return 0;
    for (const NodePlan& plan : *plans) {
      EXPECT_EQ(plan.control.page_size, plans->front().control.page_size);
    }
    return plans->front().control.page_size;
  };
  const std::string start = "[trigger]\nrate = \"10Hz\"\n[source]\ntype = \"emulator\"\n"
                            "fragment_max = \"4KiB\"\n";
  std::string many = start;
  for (int i = 0; i < 35; ++i) many += "[[readout]]\nsource = [{}]\n[[builder]]\n";
  EXPECT_EQ(page_of(many), 16U << 10);
  many += "[[readout]]\nsource = [{ id = 1000, count = 400 }]\n";
  EXPECT_GE(page_of(many), builder::control_page_least(400));
}

TEST(MemoryPlan, a_high_rate_gets_a_wide_window_and_many_sources_narrow_ones) {
  EXPECT_EQ((*plan(configuration()))[1].window, 65536U);
  const auto fast = plan(configuration({"trigger.rate=1MHz", "event.latency=0ms", "source.size=1B",
                                        "readout.0.source.0.size=1B", "readout.0.source.1.size=1B",
                                        "readout.1.source.1.size=1B"}));
  ASSERT_TRUE(fast) << fast.error().text;
  EXPECT_EQ((*fast)[1].window, 262'144U);
  const auto many = plan(configuration(
      {"readout.0.source.0.count=511", "readout.0.source.1.id=9999", "readout.0.source.0.id=1000",
       "source.fragment_max=4KiB", "buffers.readout=1GiB", "trigger.rate=10Hz"}));
  ASSERT_TRUE(many) << many.error().text;
  EXPECT_LE((*many)[1].queues, 36U << 20);
}

} // namespace
} // namespace fanin::executive
