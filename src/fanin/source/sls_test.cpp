#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fanin/source/sls_source.hpp"
#include "fanin/source/testing/recorded.hpp"

namespace fanin::source {
namespace {

using testing::Bytes;
using testing::payload_of;
using testing::QueueFixture;
using testing::sls_record;
using testing::TemporaryFolder;

Bytes records(const std::vector<std::uint64_t>& frames, std::size_t image_size) {
  Bytes bytes;
  for (const std::uint64_t frame : frames) {
    const Bytes record = sls_record(frame, image_size);
    bytes.insert(bytes.end(), record.begin(), record.end());
  }
  return bytes;
}

ReadResult read_all(Source& source, FragmentQueue& queue) {
  ReadResult result = source.read(queue, Time{});
  while (result.state == ReadState::more) result = source.read(queue, Time{});
  return result;
}

TEST(SlsFile, the_header_is_decoded) {
  Bytes bytes(sls_header_size);
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i);
  const SlsHeader header =
      SlsHeader::decode(std::span<const std::byte, sls_header_size>(bytes.data(), bytes.size()));
  EXPECT_EQ(header.frame, 0x0706050403020100U);
  EXPECT_EQ(header.packets_caught, 0x0f0e0d0cU);
}

TEST(SlsFile, master_files_of_both_kinds_tell_the_image_size) {
  EXPECT_EQ(find_sls_image_size("{\n  \"Image Size in bytes\": 524288,\n}"), 524288U);
  EXPECT_EQ(find_sls_image_size("Image Size                 : 5120 bytes\n"), 5120U);
  for (const char* bad : {"", "Image Size", "Image Size:", "Image Size: x", "Image Size : -5",
                          "Image Size : 99999999999999999999999"}) {
    EXPECT_FALSE(find_sls_image_size(bad)) << bad;
  }
}

TEST(SlsFile, patterns_name_the_files) {
  const SlsPattern pattern{"dir/j_d{part}_f{file}_0.raw", 3};
  EXPECT_EQ(pattern.path(12), "dir/j_d3_f12_0.raw");
  EXPECT_TRUE(pattern.several_files());
  EXPECT_FALSE((SlsPattern{"one.raw", 0}.several_files()));
}

TEST(SlsSource, a_sequence_of_files_is_one_stream) {
  const TemporaryFolder folder;
  folder.write("d1_f0.raw", records({10, 11, 12}, 300));
  folder.write("d1_f1.raw", records({13, 15}, 300));
  folder.write("d1_f2.raw", records({16}, 300));
  folder.write("d1_f4.raw", records({99}, 300)); // after a hole: another recording
  auto source =
      SlsSource::make({.files = {folder.file("d{part}_f{file}.raw"), 1}, .image_size = 300});
  ASSERT_TRUE(source) << source.error().text;
  QueueFixture fixture({.window = 64});
  ASSERT_TRUE((*source)->start(0, Time{}));
  EXPECT_EQ(read_all(**source, fixture.queue).state, ReadState::finished);
  EXPECT_EQ(fixture.queue.next_event(), 17U);
  EXPECT_EQ(fixture.queue.numbers().written(), 6U);
  for (const EventNumber frame : {10U, 11U, 12U, 13U, 15U, 16U}) {
    EXPECT_EQ(payload_of(fixture.queue, frame), sls_record(frame, 300));
  }
  EXPECT_TRUE(fixture.queue.entry(14).absent());
}

TEST(SlsSource, looping_goes_through_all_files_again_with_shifted_numbers) {
  const TemporaryFolder folder;
  folder.write("f0.raw", records({1, 2}, 100));
  folder.write("f1.raw", records({3}, 100));
  auto source = SlsSource::make(
      {.files = {folder.file("f{file}.raw"), 0}, .image_size = 100, .replay = {.loops = 4}});
  ASSERT_TRUE(source) << source.error().text;
  QueueFixture fixture({.window = 64});
  ASSERT_TRUE((*source)->start(0, Time{}));
  EXPECT_EQ(read_all(**source, fixture.queue).state, ReadState::finished);
  EXPECT_EQ(fixture.queue.next_event(), 13U);
  for (EventNumber event = 1; event < 13; ++event) {
    EXPECT_EQ(payload_of(fixture.queue, event), sls_record(1 + (event - 1) % 3, 100));
  }
}

TEST(SlsSource, records_are_read_into_chained_pages) {
  const TemporaryFolder folder;
  folder.write("big.raw", records({5, 6}, 50000));
  auto source = SlsSource::make({.files = {folder.file("big.raw"), 0}, .image_size = 50000});
  ASSERT_TRUE(source);
  QueueFixture fixture({.window = 64}, {.page_size = 8192, .pages = 7});
  ASSERT_TRUE((*source)->start(0, Time{}));
  EXPECT_EQ(read_all(**source, fixture.queue).state, ReadState::waiting);
  EXPECT_TRUE(fixture.queue.throttled());
  EXPECT_EQ(payload_of(fixture.queue, 5), sls_record(5, 50000));
  fixture.queue.release_until(6);
  EXPECT_EQ(read_all(**source, fixture.queue).state, ReadState::finished);
  EXPECT_EQ(payload_of(fixture.queue, 6), sls_record(6, 50000));
}

TEST(SlsSource, a_file_that_is_no_whole_number_of_records_is_an_error_with_the_offset) {
  const TemporaryFolder folder;
  Bytes bytes = records({1, 2}, 100);
  bytes.resize(bytes.size() - 10);
  const std::string path = folder.write("cut.raw", bytes);
  const auto source = SlsSource::make({.files = {path, 0}, .image_size = 100});
  ASSERT_FALSE(source);
  EXPECT_EQ(source.error().kind, ErrorKind::malformed);
  EXPECT_THAT(source.error().text, ::testing::StartsWith(path + ": offset 212: 202 bytes"));
}

TEST(SlsSource, a_later_file_that_is_damaged_keeps_what_came_before) {
  const TemporaryFolder folder;
  folder.write("f0.raw", records({1, 2}, 100));
  folder.write("f1.raw", Bytes(17));
  auto source = SlsSource::make({.files = {folder.file("f{file}.raw"), 0}, .image_size = 100});
  ASSERT_TRUE(source);
  QueueFixture fixture({.window = 64});
  ASSERT_TRUE((*source)->start(0, Time{}));
  const ReadResult result = read_all(**source, fixture.queue);
  EXPECT_EQ(result.state, ReadState::failed);
  EXPECT_THAT(result.error.text, ::testing::HasSubstr("f1.raw: offset 0: 17 bytes are left over"));
  EXPECT_EQ(fixture.queue.numbers().written(), 2U);
}

TEST(SlsSource, a_file_cut_short_while_it_is_read_leaves_no_half_fragment) {
  const TemporaryFolder folder;
  const std::string path = folder.write("shrinks.raw", records({1, 2}, 300000));
  auto source = SlsSource::make({.files = {path, 0}, .image_size = 300000});
  ASSERT_TRUE(source);
  QueueFixture fixture({.window = 64});
  ASSERT_TRUE((*source)->start(0, Time{}));
  ASSERT_EQ((*source)->read(fixture.queue, Time{}).state, ReadState::more);
  std::filesystem::resize_file(path, 400000);
  const ReadResult result = read_all(**source, fixture.queue);
  EXPECT_EQ(result.state, ReadState::failed);
  EXPECT_THAT(result.error.text, ::testing::HasSubstr("cut short"));
  EXPECT_EQ(fixture.queue.numbers().written(), 1U);
  EXPECT_FALSE(fixture.queue.open());
}

TEST(SlsSource, nothing_to_read_is_an_error) {
  const TemporaryFolder folder;
  EXPECT_FALSE(SlsSource::make({.files = {folder.file("none.raw"), 0}, .image_size = 100}));
  auto source = SlsSource::make(
      {.files = {folder.write("empty.raw", {}), 0}, .image_size = 100, .replay = {.loops = 0}});
  ASSERT_TRUE(source);
  QueueFixture fixture({.window = 64});
  ASSERT_TRUE((*source)->start(0, Time{}));
  EXPECT_EQ((*source)->read(fixture.queue, Time{}).state, ReadState::failed);
}

TEST(SlsSource, hostile_frame_numbers_are_counted_drops_and_end) {
  const TemporaryFolder folder;
  const auto path =
      folder.write("odd.raw", records({5, 0, ~std::uint64_t{0}, 6, 1U << 30, 7}, 100));
  auto source =
      SlsSource::make({.files = {path, 0}, .image_size = 100, .replay = {.rate_hz = 1e9}});
  ASSERT_TRUE(source);
  QueueFixture fixture({.window = 64});
  ASSERT_TRUE((*source)->start(0, Time{}));
  ReadResult result;
  for (int turns = 0; turns < 20 && result.state != ReadState::finished; ++turns) {
    result = (*source)->read(fixture.queue, Time{turns * std::chrono::seconds{1}});
  }
  EXPECT_EQ(result.state, ReadState::finished);
  EXPECT_EQ(fixture.queue.next_event(), 8U);
  EXPECT_GE(fixture.queue.numbers().dropped(wire::DropReason::number_jump), 2U);
}

} // namespace
} // namespace fanin::source
