#include <sys/stat.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fanin/source/hld_source.hpp"
#include "fanin/source/testing/recorded.hpp"

namespace fanin::source {
namespace {

using testing::Bytes;
using testing::HldBuilder;
using testing::QueueFixture;
using testing::TemporaryFolder;

struct Block {
  std::uint32_t sequence, trigger;
  std::uint16_t address;
  std::uint64_t offset;
  std::size_t size;
  friend bool operator==(const Block&, const Block&) = default;
};

// Every block of the bytes, or the text of the error.
Result<std::vector<Block>> blocks_of(const Bytes& bytes) {
  HldReader reader(FileWindow("test.hld", bytes));
  std::vector<Block> blocks;
  while (true) {
    const auto event = reader.next_event();
    if (!event) return std::unexpected(event.error());
    if (!*event) return blocks;
    while (true) {
      const auto block = reader.next_block();
      if (!block) return std::unexpected(block.error());
      if (!*block) break;
      blocks.push_back({reader.event().sequence, reader.subevent().trigger, reader.block().address,
                        reader.block().offset, reader.block().bytes.size()});
    }
  }
}

std::string error_of(const Bytes& bytes) {
  const auto blocks = blocks_of(bytes);
  if (blocks) return "no error";
  EXPECT_EQ(blocks.error().kind, ErrorKind::malformed);
  return blocks.error().text;
}

// `bytes` with the little-endian word at `at` replaced.
Bytes with_word(Bytes bytes, std::size_t at, std::uint32_t value) {
  std::memcpy(bytes.data() + at, &value, 4);
  return bytes;
}

Bytes two_events() {
  HldBuilder file;
  file.header(32, 0); // a run starts
  file.event(1, 50, {0xe000, 0xe001});
  file.event(2, 51, {0xe000, 0xe001});
  return file.bytes();
}
// In two_events(): offsets of headers.
constexpr std::size_t first_event = 32;
constexpr std::size_t first_subevent = 64;
constexpr std::size_t first_block = 80;
constexpr std::size_t second_event = 112;

TEST(HldReader, finds_every_block_in_either_byte_order) {
  for (const bool big_endian : {false, true}) {
    HldBuilder file(big_endian);
    file.header(32, 0);
    file.event(1, 50, {0xe000, 0x5555}, 3);
    file.event(2, 51, {0xe000}, 0);
    const auto blocks = blocks_of(file.bytes());
    ASSERT_TRUE(blocks) << blocks.error().text;
    EXPECT_EQ(*blocks,
              (std::vector<Block>{
                  {1, 50, 0xe000, 80, 16}, {1, 50, 0x5555, 96, 16}, {2, 51, 0xe000, 160, 4}}));
  }
}

TEST(HldReader, each_header_has_its_own_byte_order) {
  HldBuilder header(false);
  header.header(32 + 16 + 8, 9);
  HldBuilder rest(true);
  for (const std::uint32_t value :
       {24U, 0x20001U, 0x8000U, 77U << 8 | 5, 1U << 16 | 0xe001U, 42U}) {
    rest.word(value);
  }
  Bytes bytes = header.bytes();
  bytes.insert(bytes.end(), rest.bytes().begin(), rest.bytes().end());
  const auto blocks = blocks_of(bytes);
  ASSERT_TRUE(blocks) << blocks.error().text;
  EXPECT_EQ(*blocks, (std::vector<Block>{{9, 77, 0xe001, 48, 8}}));
}

TEST(HldReader, an_empty_file_has_no_events) {
  const auto blocks = blocks_of({});
  ASSERT_TRUE(blocks);
  EXPECT_TRUE(blocks->empty());
}

TEST(HldReader, damage_is_an_error_with_file_and_offset) {
  const Bytes good = two_events();
  ASSERT_EQ(error_of(good), "no error");
  EXPECT_THAT(error_of(with_word(good, first_event, 31)),
              ::testing::StartsWith("test.hld: offset 32: event size 31"));
  EXPECT_THAT(error_of(with_word(good, first_event, 0xffffffff)),
              ::testing::StartsWith("test.hld: offset 32: event size"));
  EXPECT_THAT(error_of(with_word(good, second_event, 10000)),
              ::testing::StartsWith("test.hld: offset 112: "));
  EXPECT_THAT(error_of(with_word(good, first_event + 4, 0x01020304)),
              ::testing::StartsWith("test.hld: offset 36: decoding word"));
  EXPECT_THAT(error_of(with_word(good, first_subevent, 8)),
              ::testing::StartsWith("test.hld: offset 64: subevent size 8"));
  EXPECT_THAT(error_of(with_word(good, first_subevent, 1000)),
              ::testing::StartsWith("test.hld: offset 64: subevent size 1000"));
  EXPECT_THAT(error_of(with_word(good, first_subevent, 47)),
              ::testing::StartsWith("test.hld: offset 64: subevent size 47"));
  EXPECT_THAT(error_of(with_word(good, first_block, 0xffffe000)),
              ::testing::StartsWith("test.hld: offset 80: block of"));
}

TEST(HldReader, every_truncation_is_an_error_or_ends_between_events) {
  const Bytes good = two_events();
  for (std::size_t size = 0; size < good.size(); ++size) {
    const auto blocks = blocks_of(Bytes(good.begin(), good.begin() + static_cast<long>(size)));
    EXPECT_EQ(blocks.has_value(), size == 0 || size == first_event || size == second_event) << size;
  }
}

HldSource open_source(const Bytes& bytes, const HldOptions& options) {
  return HldSource(options, FileWindow("test.hld", bytes));
}

ReadResult read_all(HldSource& source, FragmentQueue& queue) {
  ReadResult result = source.read(queue, Time{});
  while (result.state == ReadState::more) result = source.read(queue, Time{});
  return result;
}

TEST(HldSource, one_address_is_a_stream_and_missing_numbers_are_absent) {
  HldBuilder file;
  file.event(1, 50, {0xe000, 0xe001});
  file.event(2, 51, {0xe000});
  file.event(3, 53, {0xe000, 0xe001});
  QueueFixture fixture({.window = 64});
  HldSource source = open_source(file.bytes(), {.address = 0xe001});
  ASSERT_TRUE(source.start(0, Time{}));
  EXPECT_EQ(read_all(source, fixture.queue).state, ReadState::finished);
  fixture.end_held();
  EXPECT_EQ(fixture.queue.next_event(), 54U);
  EXPECT_FALSE(fixture.queue.entry(50).absent());
  EXPECT_TRUE(fixture.queue.entry(51).absent());
  EXPECT_TRUE(fixture.queue.entry(52).absent());
  EXPECT_EQ(fixture.queue.entry(53).size(), 16U);
}

TEST(HldSource, the_recorded_event_number_may_be_the_key) {
  HldBuilder file;
  file.event(7, 50, {0xe000});
  QueueFixture fixture({.window = 64});
  HldSource source = open_source(file.bytes(), {.address = 0xe000, .key = HldKey::sequence});
  ASSERT_TRUE(source.start(0, Time{}));
  EXPECT_EQ(read_all(source, fixture.queue).state, ReadState::finished);
  fixture.end_held();
  EXPECT_EQ(fixture.queue.entry(7).size(), 16U);
}

TEST(HldSource, looping_goes_on_after_the_last_number_and_keeps_the_gaps) {
  HldBuilder file;
  file.event(1, 50, {0xe000, 0xe001});
  file.event(2, 52, {0xe000}); // 0xe001 has nothing here: its passes are shifted alike
  QueueFixture fixture({.window = 64});
  HldSource source = open_source(file.bytes(), {.address = 0xe001, .replay = {.loops = 3}});
  ASSERT_TRUE(source.start(0, Time{}));
  EXPECT_EQ(read_all(source, fixture.queue).state, ReadState::finished);
  fixture.end_held();
  EXPECT_EQ(fixture.queue.next_event(), 59U);
  for (EventNumber event = 50; event < 59; ++event) {
    EXPECT_EQ(fixture.queue.entry(event).absent(), (event - 50) % 3 != 0) << event;
  }
}

TEST(HldSource, it_joins_a_run_in_a_later_pass) {
  HldBuilder file;
  for (std::uint32_t i = 0; i < 10; ++i) file.event(i, 100 + i, {0xe000});
  for (const EventNumber first : {103U, 110U, 115U, 119U, 120U, 1000000001U}) {
    for (const bool file_known : {false, true}) {
      QueueFixture fixture({.window = 64});
      HldSource source =
          open_source(file.bytes(), {.address = 0xe000, .replay = {.loops = 200000000}});
      fixture.queue.numbers().set_limit(first);
      ASSERT_TRUE(source.start(0, Time{}));
      if (file_known) {
        for (int i = 0; i < 5; ++i) (void)source.read(fixture.queue, Time{});
      }
      fixture.queue.start(first);
      fixture.queue.numbers().set_limit(first + 1);
      ASSERT_TRUE(source.start(first, Time{}));
      (void)read_all(source, fixture.queue);
      ASSERT_EQ(fixture.queue.next_event(), first + 1);
      EXPECT_EQ(fixture.queue.entry(first).size(), 16U) << first;
      EXPECT_EQ(fixture.queue.numbers().dropped(wire::DropReason::late), 0U);
    }
  }
}

TEST(HldSource, a_24_bit_trigger_number_goes_on_over_its_wrap) {
  HldBuilder file;
  file.event(1, 0xffffff, {0xe000});
  file.event(2, 0, {0xe000});
  QueueFixture fixture({.window = 64});
  HldSource source = open_source(file.bytes(), {.address = 0xe000});
  ASSERT_TRUE(source.start(0, Time{}));
  EXPECT_EQ(read_all(source, fixture.queue).state, ReadState::finished);
  EXPECT_EQ(fixture.queue.next_event(), 0x1000001U);
  EXPECT_EQ(fixture.queue.numbers().written(), 2U);
}

TEST(HldSource, numbers_that_jump_or_go_back_are_counted_drops) {
  HldBuilder file;
  for (const std::uint32_t trigger : {100U, 90U, 101U, 101U, 900000U, 103U, 104U}) {
    file.event(1, trigger, {0xe000});
  }
  QueueFixture fixture({.window = 64});
  fixture.queue.start(100);
  HldSource source = open_source(file.bytes(), {.address = 0xe000, .replay = {.rate_hz = 1e9}});
  ASSERT_TRUE(source.start(0, Time{}));
  (void)source.read(fixture.queue, Time{});
  const Time later{std::chrono::seconds{1}};
  EXPECT_EQ(source.read(fixture.queue, later).state, ReadState::finished);
  EXPECT_EQ(fixture.queue.next_event(), 105U);
  EXPECT_EQ(fixture.queue.numbers().written(), 4U);
  EXPECT_EQ(fixture.queue.numbers().dropped(wire::DropReason::number_back), 1U);
  EXPECT_EQ(fixture.queue.numbers().dropped(wire::DropReason::number_repeat), 1U);
  EXPECT_EQ(fixture.queue.numbers().dropped(wire::DropReason::number_jump), 1U);
}

TEST(HldSource, a_full_queue_loses_nothing) {
  HldBuilder file;
  for (std::uint32_t i = 0; i < 100; ++i) file.event(i, i, {0xe000, 0xe001});
  QueueFixture fixture({.window = 8});
  HldSource source = open_source(file.bytes(), {.address = 0xe001});
  ASSERT_TRUE(source.start(0, Time{}));
  ReadResult result = read_all(source, fixture.queue);
  for (int turns = 0; result.state == ReadState::waiting && turns < 100; ++turns) {
    EXPECT_TRUE(fixture.queue.throttled());
    fixture.queue.release_until(fixture.queue.next_event());
    result = read_all(source, fixture.queue);
  }
  EXPECT_EQ(result.state, ReadState::finished);
  EXPECT_EQ(fixture.queue.numbers().written(), 100U);
}

TEST(HldSource, a_rate_paces_by_number) {
  using namespace std::chrono_literals;
  HldBuilder file;
  for (std::uint32_t i = 0; i < 100; ++i) file.event(i, 1000 + i, {0xe000});
  QueueFixture fixture({.window = 128});
  fixture.queue.start(1000);
  HldSource source = open_source(file.bytes(), {.address = 0xe000, .replay = {.rate_hz = 100}});
  ASSERT_TRUE(source.start(0, Time{1s}));
  const ReadResult first = source.read(fixture.queue, Time{1s});
  EXPECT_EQ(first.state, ReadState::waiting);
  EXPECT_EQ(fixture.queue.next_event(), 1001U);
  EXPECT_GE(first.wake, Time{1010ms});
  (void)source.read(fixture.queue, Time{1500ms});
  EXPECT_EQ(fixture.queue.next_event(), 1051U);
}

TEST(HldSource, damage_in_the_middle_keeps_what_came_before) {
  Bytes bytes = two_events();
  bytes = with_word(std::move(bytes), second_event, 5);
  QueueFixture fixture({.window = 64});
  HldSource source = open_source(bytes, {.address = 0xe000});
  ASSERT_TRUE(source.start(0, Time{}));
  const ReadResult result = read_all(source, fixture.queue);
  EXPECT_EQ(result.state, ReadState::failed);
  EXPECT_THAT(result.error.text, ::testing::StartsWith("test.hld: offset 112: "));
  fixture.end_held();
  EXPECT_EQ(fixture.queue.numbers().written(), 1U);
  EXPECT_EQ(source.read(fixture.queue, Time{}).state, ReadState::failed);
}

TEST(HldSource, a_file_without_data_is_an_error_and_not_an_endless_loop) {
  HldBuilder file;
  file.header(32, 0);
  for (const Bytes& bytes : {Bytes{}, file.bytes()}) {
    QueueFixture fixture({.window = 64});
    HldSource source = open_source(bytes, {.address = 0xe000, .replay = {.loops = 0}});
    ASSERT_TRUE(source.start(0, Time{}));
    EXPECT_EQ(source.read(fixture.queue, Time{}).state, ReadState::failed);
  }
}

TEST(HldSource, empty_events_are_read_some_at_a_time) {
  HldBuilder file;
  for (std::uint32_t i = 0; i < 20'000; ++i) file.header(32, i);
  file.event(20'000, 50, {0xe000});
  HldSource source = open_source(file.bytes(), {.address = 0xe000});
  QueueFixture fixture({.window = 64});
  ASSERT_TRUE(source.start(0, Time{}));
  int reads = 0;
  while (source.read(fixture.queue, Time{}).state == ReadState::more) ++reads;
  EXPECT_EQ(reads, 2); // of 256 KiB each
  fixture.end_held();
  EXPECT_EQ(fixture.queue.numbers().written(), 1U);
}

TEST(HldSource, opening_says_what_is_wrong) {
  const auto missing = HldSource::make({.path = "/no/such/file.hld", .address = 0xe000});
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().kind, ErrorKind::not_found);
  EXPECT_THAT(missing.error().text, ::testing::HasSubstr("/no/such/file.hld"));
  const auto trailer = HldSource::make({.path = "x", .address = 0x5555});
  ASSERT_FALSE(trailer);
  EXPECT_EQ(trailer.error().kind, ErrorKind::usage);
  EXPECT_FALSE(HldSource::make({.path = "/tmp", .address = 1}));
  const TemporaryFolder folder;
  const std::string pipe = folder.file("pipe.hld");
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  const auto waits = HldSource::make({.path = pipe, .address = 1});
  ASSERT_FALSE(waits);
  EXPECT_EQ(waits.error().kind, ErrorKind::refused); // who knows file, line and key adds them
  EXPECT_EQ(waits.error().text, pipe + ": is not a regular file");
}

TEST(HldSource, a_file_cut_short_while_it_is_read_is_an_error) {
  HldBuilder file;
  for (std::uint32_t i = 0; i < 10000; ++i) file.event(i, i, {0xe000}, 20);
  const TemporaryFolder folder;
  const std::string path = folder.write("shrinks.hld", file.bytes());
  auto source = HldSource::make({.path = path, .address = 0xe000});
  ASSERT_TRUE(source);
  QueueFixture fixture({.window = 1U << 16});
  ASSERT_TRUE((*source)->start(0, Time{}));
  ASSERT_EQ((*source)->read(fixture.queue, Time{}).state, ReadState::more);
  std::filesystem::resize_file(path, 300000);
  const ReadResult result = read_all(**source, fixture.queue);
  EXPECT_EQ(result.state, ReadState::failed);
  EXPECT_THAT(result.error.text, ::testing::HasSubstr("cut short"));
}

} // namespace
} // namespace fanin::source
