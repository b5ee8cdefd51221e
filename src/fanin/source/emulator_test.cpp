#include "fanin/source/emulator.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cmath>

#include "fanin/source/plain_math.hpp"
#include "fanin/source/testing/queue_fixture.hpp"

namespace fanin::source {
namespace {

using testing::Bytes;
using testing::payload_of;
using testing::QueueFixture;

// FNV-1a over the first sizes: one number that stands for the whole sequence.
std::uint64_t sizes_hash(const SizeDistribution& distribution, SourceId source,
                         std::uint64_t seed) {
  const SizeTable sizes(distribution, source, seed);
  std::uint64_t hash = 0xcbf29ce484222325U;
  for (EventNumber event = 0; event < 100000; ++event) {
    hash = (hash ^ sizes(event)) * 0x100000001b3U;
  }
  return hash;
}

// If this fails, runs emulated by another version, compiler or machine no longer compare.
TEST(Emulator, sizes_are_the_same_on_every_compiler_and_platform) {
  const SizeTable lognormal(LogNormalSize{2048, 1024}, 3, 1);
  std::array<std::uint32_t, 6> first{};
  for (EventNumber event = 0; event < 6; ++event) first.at(event) = lognormal(event);
  EXPECT_EQ(first, (std::array<std::uint32_t, 6>{2536, 1723, 1845, 2184, 730, 464}));
  EXPECT_EQ(sizes_hash(LogNormalSize{2048, 1024}, 3, 1), 4138183488393941675U);
  EXPECT_EQ(sizes_hash(LogNormalSize{500, 5000}, 0, 42), 16825380374711678856U);
  EXPECT_EQ(sizes_hash(UniformSize{100, 3000}, 7, 1), 17448708818950268650U);
}

TEST(Emulator, log_normal_sizes_have_their_mean_and_sigma) {
  const SizeTable sizes(LogNormalSize{8192, 2048}, 0, 1);
  constexpr int count = 1 << 18;
  double sum = 0;
  double squares = 0;
  for (EventNumber event = 0; event < count; ++event) {
    const double size = sizes(event);
    sum += size;
    squares += size * size;
  }
  const double mean = sum / count;
  EXPECT_NEAR(mean, 8192, 82);
  EXPECT_NEAR(std::sqrt(squares / count - mean * mean), 2048, 40);
}

TEST(Emulator, uniform_sizes_reach_both_ends) {
  const SizeTable sizes(UniformSize{3, 6}, 0, 1);
  std::array<int, 8> counts{};
  for (EventNumber event = 0; event < 40000; ++event) ++counts.at(sizes(event));
  for (const std::size_t size : {3U, 4U, 5U, 6U}) EXPECT_NEAR(counts[size], 10000, 500);
  EXPECT_EQ(counts[2] + counts[7], 0);
}

TEST(Emulator, sizes_depend_on_source_and_seed) {
  const auto hash = sizes_hash(UniformSize{0, 1000}, 1, 1);
  EXPECT_NE(hash, sizes_hash(UniformSize{0, 1000}, 2, 1));
  EXPECT_NE(hash, sizes_hash(UniformSize{0, 1000}, 1, 2));
}

TEST(PlainMath, agrees_with_libm) {
  for (const double x : {1e-300, 1e-5, 0.5, 0.999999, 1.0, 1.000001, 1.4142135, 2.0, 10.0, 1e18}) {
    EXPECT_NEAR(detail::plain_log(x), std::log(x), 1e-14 * std::abs(std::log(x)) + 1e-16) << x;
  }
  for (const double x : {-600.0, -3.3, -1e-9, 0.0, 0.34, 0.35, 1.0, 20.5, 600.0}) {
    EXPECT_NEAR(detail::plain_exp(x) / std::exp(x), 1, 1e-13) << x;
  }
  EXPECT_NEAR(detail::normal_quantile(0.5), 0, 1e-12);
  EXPECT_NEAR(detail::normal_quantile(0.975), 1.959963984540054, 1e-8);
  EXPECT_NEAR(detail::normal_quantile(0.001), -3.090232306167813, 1e-8);
  EXPECT_NEAR(detail::normal_quantile(0.0001), -detail::normal_quantile(0.9999), 1e-9);
}

TEST(Emulator, every_fragment_can_be_checked) {
  QueueFixture fixture({.source = 9, .window = 1024}, {.page_size = 65536, .pages = 8});
  Emulator emulator({.source = 9, .size = UniformSize{0, 3000}, .event_count = 150});
  ASSERT_TRUE(emulator.start(0, Time{}));
  while (emulator.read(fixture.queue, Time{}).state == ReadState::more) {
  }
  ASSERT_EQ(fixture.queue.next_event(), 150U);
  for (EventNumber event = 0; event < 150; ++event) {
    const Bytes payload = payload_of(fixture.queue, event);
    ASSERT_EQ(payload.size(), emulator.size_of(event));
    ASSERT_TRUE(check_emulated_payload(payload, event, 9)) << event;
    ASSERT_EQ(fixture.queue.entry(event).crc32c, wire::crc32c(payload));
    if (payload.size() >= 16) {
      EXPECT_FALSE(check_emulated_payload(payload, event + 1, 9));
      EXPECT_FALSE(check_emulated_payload(payload, event, 8));
    }
  }
}

TEST(Emulator, fragments_longer_than_a_page_can_be_checked) {
  QueueFixture fixture({.source = 1, .window = 64}, {.page_size = 4096, .pages = 16});
  Emulator emulator({.source = 1, .size = FixedSize{10001}, .event_count = 4});
  ASSERT_TRUE(emulator.start(0, Time{}));
  EXPECT_EQ(emulator.read(fixture.queue, Time{}).state, ReadState::finished);
  for (EventNumber event = 0; event < 4; ++event) {
    const Bytes payload = payload_of(fixture.queue, event);
    ASSERT_EQ(payload.size(), 10001U);
    EXPECT_TRUE(check_emulated_payload(payload, event, 1));
  }
}

TEST(Emulator, a_flipped_bit_is_seen) {
  for (const std::size_t size : {1U, 15U, 16U, 200U, 4095U, 4096U, 5000U, 20000U}) {
    Bytes payload(size);
    fill_emulated_payload(payload, 77, 5);
    ASSERT_TRUE(check_emulated_payload(payload, 77, 5)) << size;
    for (const std::size_t at : {std::size_t{0}, size / 2, size - 1}) {
      payload[at] ^= std::byte{1};
      EXPECT_FALSE(check_emulated_payload(payload, 77, 5)) << size << " " << at;
      payload[at] ^= std::byte{1};
    }
  }
}

TEST(Emulator, sizes_are_cut_to_the_maximum_of_the_queue) {
  QueueFixture fixture({.window = 64, .fragment_max = 100}, {.page_size = 4096, .pages = 4});
  Emulator emulator({.size = FixedSize{200}, .event_count = 3});
  ASSERT_TRUE(emulator.start(0, Time{}));
  EXPECT_EQ(emulator.read(fixture.queue, Time{}).state, ReadState::finished);
  EXPECT_EQ(fixture.queue.entry(2).size(), 100U);
  EXPECT_EQ(fixture.queue.numbers().dropped(wire::DropReason::oversize), 0U);
}

TEST(Emulator, a_rate_follows_the_time_passed_in) {
  using namespace std::chrono_literals;
  QueueFixture fixture({.window = 4096}, {.page_size = 65536, .pages = 8});
  Emulator emulator({.size = FixedSize{16}, .rate_hz = 1000});
  const Time begin{5s};
  fixture.queue.start(0);
  ASSERT_TRUE(emulator.start(0, begin));
  const ReadResult first = emulator.read(fixture.queue, begin);
  EXPECT_EQ(first.state, ReadState::waiting);
  EXPECT_EQ(fixture.queue.next_event(), 1U);
  EXPECT_GE(first.wake, begin + 1ms);
  EXPECT_LE(first.wake, begin + 1ms + 2ns);
  (void)emulator.read(fixture.queue, first.wake);
  EXPECT_EQ(fixture.queue.next_event(), 2U);
  (void)emulator.read(fixture.queue, begin + 1s);
  EXPECT_EQ(fixture.queue.next_event(), 1001U);
}

// Sources that have waited for others for different times would never come together.
TEST(Emulator, the_time_before_the_run_begins_does_not_count) {
  using namespace std::chrono_literals;
  QueueFixture fixture({.window = 4096}, {.page_size = 65536, .pages = 8});
  Emulator emulator({.size = FixedSize{16}, .rate_hz = 1000});
  fixture.queue.numbers().set_limit(0);
  ASSERT_TRUE(emulator.start(0, Time{1s}));
  for (const Time waiting : {Time{1s}, Time{3s}, Time{5s}}) {
    (void)emulator.read(fixture.queue, waiting);
    EXPECT_FALSE(fixture.queue.numbered());
  }
  fixture.queue.numbers().set_limit(event_number_end);
  (void)emulator.read(fixture.queue, Time{7s});
  ASSERT_TRUE(fixture.queue.numbered());
  (void)emulator.read(fixture.queue, Time{7s});
  EXPECT_LE(fixture.queue.next_event(), 5U);
  (void)emulator.read(fixture.queue, Time{8s});
  EXPECT_NEAR(static_cast<double>(fixture.queue.next_event()), 1002, 3);
}

TEST(Emulator, what_was_held_back_is_made_up_for_and_nothing_is_skipped) {
  using namespace std::chrono_literals;
  QueueFixture fixture({.window = 64}, {.page_size = 4096, .pages = 4});
  Emulator emulator({.size = FixedSize{8}, .rate_hz = 1000});
  fixture.queue.start(0);
  ASSERT_TRUE(emulator.start(0, Time{}));
  (void)emulator.read(fixture.queue, Time{});
  const ReadResult held = emulator.read(fixture.queue, Time{1s});
  EXPECT_EQ(held.state, ReadState::waiting);
  EXPECT_TRUE(fixture.queue.throttled());
  EXPECT_EQ(fixture.queue.next_event(), 64U);
  for (EventNumber event = 64; event <= 1001; event += 64) {
    fixture.queue.release_until(event);
    (void)emulator.read(fixture.queue, Time{1s});
  }
  EXPECT_EQ(fixture.queue.next_event(), 1001U);
  EXPECT_EQ(fixture.queue.numbers().written(), 1001U);
}

TEST(Emulator, it_waits_at_the_limit_and_goes_on) {
  QueueFixture fixture({.window = 1024}, {.page_size = 65536, .pages = 8});
  Emulator emulator({.size = FixedSize{200}});
  ASSERT_TRUE(emulator.start(0, Time{}));
  fixture.queue.numbers().set_limit(10);
  EXPECT_EQ(emulator.read(fixture.queue, Time{}).state, ReadState::waiting);
  EXPECT_EQ(fixture.queue.next_event(), 10U);
  EXPECT_FALSE(fixture.queue.throttled());
  fixture.queue.numbers().set_limit(25);
  (void)emulator.read(fixture.queue, Time{});
  EXPECT_EQ(fixture.queue.next_event(), 25U);
}

TEST(Emulator, it_joins_a_run_that_is_under_way) {
  QueueFixture fixture({.source = 4, .window = 64}, {.page_size = 4096, .pages = 4});
  Emulator emulator({.source = 4, .size = FixedSize{64}});
  fixture.queue.start(1000);
  ASSERT_TRUE(emulator.start(1000, Time{}));
  (void)emulator.read(fixture.queue, Time{});
  EXPECT_TRUE(check_emulated_payload(payload_of(fixture.queue, 1000), 1000, 4));
}

TEST(Emulator, zero_length_fragments_are_fragments) {
  QueueFixture fixture({.window = 64}, {.page_size = 4096, .pages = 4});
  Emulator emulator({.size = FixedSize{0}, .event_count = 10});
  ASSERT_TRUE(emulator.start(0, Time{}));
  EXPECT_EQ(emulator.read(fixture.queue, Time{}).state, ReadState::finished);
  EXPECT_EQ(fixture.queue.numbers().written(), 10U);
  EXPECT_FALSE(fixture.queue.entry(3).absent());
}

TEST(Emulator, a_call_is_bounded) {
  QueueFixture fixture({.window = 1U << 20}, {.page_size = 65536, .pages = 512});
  Emulator emulator({.size = FixedSize{1000}});
  ASSERT_TRUE(emulator.start(0, Time{}));
  EXPECT_EQ(emulator.read(fixture.queue, Time{}).state, ReadState::more);
  EXPECT_LT(fixture.queue.position(fixture.queue.next_event()), 300000U);
}

} // namespace
} // namespace fanin::source
