// The replays against the real recordings: every fragment byte for byte as fragments.csv says, and
// the numbers that are missing there. Skipped where the recordings are not at hand.
#include <gtest/gtest.h>

#include <array>
#include <map>
#include <sstream>

#include "fanin/source/hld_source.hpp"
#include "fanin/source/sls_source.hpp"
#include "fanin/source/testing/recorded.hpp"

namespace fanin::source {
namespace {

using testing::Bytes;
using testing::payload_of;
using testing::QueueFixture;

constexpr const char* no_data = "the recordings are not here: FANIN_DATA names their folder, "
                                "./dev data says where to get them";

// CRC-32 of zlib, another polynomial than ours.
std::uint32_t crc32_of(std::span<const std::byte> bytes) {
  static const auto table = [] {
    std::array<std::uint32_t, 256> result{};
    for (std::uint32_t i = 0; i < 256; ++i) {
      std::uint32_t value = i;
      for (int bit = 0; bit < 8; ++bit) {
        value = (value >> 1) ^ ((value & 1) != 0 ? 0xedb88320U : 0U);
      }
      result[i] = value;
    }
    return result;
  }();
  std::uint32_t state = ~0U;
  for (const std::byte byte : bytes) {
    state = (state >> 8) ^ table[(state ^ std::to_integer<std::uint32_t>(byte)) & 0xff];
  }
  return ~state;
}

std::vector<std::vector<std::string>> read_csv(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::vector<std::vector<std::string>> rows;
  std::string line;
  for (std::getline(file, line); std::getline(file, line);) {
    std::istringstream cells(line);
    std::vector<std::string>& row = rows.emplace_back();
    for (std::string cell; std::getline(cells, cell, ',');) row.push_back(cell);
  }
  return rows;
}

std::uint32_t hexadecimal(const std::string& text) {
  return static_cast<std::uint32_t>(std::stoul(text, nullptr, 16));
}

struct Expected {
  std::size_t length = 0;
  std::uint32_t crc32 = 0;
};
using Stream = std::map<EventNumber, Expected>;

// Reads `source` to its end and compares each fragment, releasing as it goes.
void expect_stream(Source& source, const Stream& expected, std::uint64_t loops = 1) {
  QueueFixture fixture({.window = 4096, .fragment_max = 1U << 20},
                       {.page_size = 65536, .pages = 64});
  FragmentQueue& queue = fixture.queue;
  const EventNumber first = expected.begin()->first;
  const EventNumber span = expected.rbegin()->first - first + 1;
  queue.start(first);
  ASSERT_TRUE(source.start(0, Time{}));
  EventNumber checked = first;
  std::size_t fragments = 0;
  for (ReadResult result; result.state != ReadState::finished;) {
    result = source.read(queue, Time{});
    ASSERT_NE(result.state, ReadState::failed) << result.error.text;
    ASSERT_TRUE(queue.numbered());
    for (; checked < queue.next_event(); ++checked) {
      const auto found = expected.find(first + (checked - first) % span);
      ASSERT_EQ(queue.entry(checked).absent(), found == expected.end()) << checked;
      if (found == expected.end()) continue;
      const Bytes payload = payload_of(queue, checked);
      ASSERT_EQ(payload.size(), found->second.length) << checked;
      ASSERT_EQ(crc32_of(payload), found->second.crc32) << checked;
      ++fragments;
    }
    queue.release_until(checked);
  }
  EXPECT_EQ(fragments, expected.size() * loops);
  EXPECT_EQ(queue.numbers().written(), fragments);
  for (std::size_t reason = 0; reason < wire::drop_reasons; ++reason) {
    EXPECT_EQ(queue.numbers().dropped(static_cast<wire::DropReason>(reason)), 0U);
  }
}

TEST(RecordedData, every_fragment_of_the_hld_file_is_replayed_byte_for_byte) {
  const auto folder = testing::recorded_data() / "jpet-hld";
  const auto rows = read_csv(folder / "fragments.csv");
  if (rows.empty()) GTEST_SKIP() << no_data;
  // event_seq, trigger, source, offset, length, crc32
  for (const HldKey key : {HldKey::trigger, HldKey::sequence}) {
    std::map<std::uint32_t, Stream> streams;
    for (const auto& row : rows) {
      streams[hexadecimal(row[2])][std::stoull(row[key == HldKey::trigger ? 1 : 0])] = {
          std::stoull(row[4]), hexadecimal(row[5])};
    }
    streams.erase(hld_trailer_address);
    ASSERT_EQ(streams.size(), 5U);
    std::size_t fragments = 0;
    for (const auto& [address, stream] : streams) {
      SCOPED_TRACE(::testing::Message() << "address " << std::hex << address);
      auto source = HldSource::make({.path = folder / "xx14099113231.hld",
                                     .address = static_cast<std::uint16_t>(address),
                                     .key = key,
                                     .replay = {.loops = 2}});
      ASSERT_TRUE(source) << source.error().text;
      ASSERT_NO_FATAL_FAILURE(expect_stream(**source, stream, 2));
      fragments += stream.size();
    }
    EXPECT_EQ(fragments, 20575U);
  }
}

TEST(RecordedData, the_two_triggers_that_never_came_are_gaps_in_every_source) {
  const auto path = testing::recorded_data() / "jpet-hld" / "xx14099113231.hld";
  if (!std::filesystem::exists(path)) GTEST_SKIP() << no_data;
  for (const std::uint32_t address : {0xe000U, 0xe001U, 0xe002U, 0xe003U, 0x8000U}) {
    auto source = HldSource::make({.path = path, .address = static_cast<std::uint16_t>(address)});
    ASSERT_TRUE(source);
    QueueFixture fixture({.window = 8192}, {.page_size = 65536, .pages = 80});
    ASSERT_TRUE((*source)->start(0, Time{}));
    while ((*source)->read(fixture.queue, Time{}).state == ReadState::more) {
    }
    std::vector<EventNumber> absent;
    for (EventNumber event = 50002; event < fixture.queue.next_event(); ++event) {
      if (fixture.queue.entry(event).absent()) absent.push_back(event);
    }
    EXPECT_EQ(absent, (std::vector<EventNumber>{50573, 52233}));
    EXPECT_EQ(fixture.queue.next_event(), 54119U);
  }
}

TEST(RecordedData, every_fragment_of_the_sls_sets_is_replayed_byte_for_byte) {
  const auto folder = testing::recorded_data() / "sls-modules";
  const auto rows = read_csv(folder / "fragments.csv");
  if (rows.empty()) GTEST_SKIP() << no_data;
  // set, frame, source, file, offset, length, crc32
  std::map<std::string, std::map<std::uint32_t, Stream>> sets;
  for (const auto& row : rows) {
    sets[row[0]][static_cast<std::uint32_t>(std::stoul(row[2]))][std::stoull(row[1])] = {
        std::stoull(row[5]), hexadecimal(row[6])};
  }
  std::size_t fragments = 0;
  for (const auto& [set, parts] : sets) {
    const bool old = set == "scan242";
    const auto master = folder / (old ? "CORRECTED_scan242_master_3.raw" : set + "_master_0.json");
    const auto image_size = read_sls_image_size(master);
    ASSERT_TRUE(image_size) << image_size.error().text;
    for (const auto& [part, stream] : parts) {
      SCOPED_TRACE(::testing::Message() << set << " part " << part);
      const std::string name = set + "_d{part}_f{file}_" + (old ? "3" : "0") + ".raw";
      auto source = SlsSource::make(
          {.files = {folder / name, part}, .image_size = *image_size, .replay = {.loops = 3}});
      ASSERT_TRUE(source) << source.error().text;
      ASSERT_NO_FATAL_FAILURE(expect_stream(**source, stream, 3));
      fragments += stream.size();
    }
  }
  EXPECT_EQ(fragments, 48U);
}

} // namespace
} // namespace fanin::source
