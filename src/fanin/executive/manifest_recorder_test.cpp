// What the event manager says is in the manifest, under the names that readers know.
#include "fanin/executive/manifest_recorder.hpp"

#include <cstdlib>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fanin/source/fragment_queue.hpp"
#include "fanin/storage/testing/no_room.hpp"

namespace fanin::executive {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

class ManifestRecorderTest : public ::testing::Test {
protected:
  ManifestRecorderTest() {
    folder_ = ::testing::TempDir() + "/fanin_recorder_XXXXXX";
    if (::mkdtemp(folder_.data()) == nullptr) throw std::runtime_error("mkdtemp " + folder_);
    system_.run = 42;
    system_.protocol = builder::Protocol::pull;
    system_.builder_units = {"bu0", "bu1"};
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  Result<std::unique_ptr<ManifestRecorder>> make() {
    return ManifestRecorder::make(
        folder_, system_, 77, {"", "daq-bu1"}, clock_,
        [this](LogLevel level, std::string_view text) { logged_.emplace_back(level, text); });
  }
  static storage::Manifest read(const ManifestRecorder& recorder) {
    auto manifest = storage::read_manifest(recorder.path());
    if (!manifest) throw std::runtime_error(manifest.error().text);
    return std::move(*manifest);
  }

  std::string folder_;
  builder::System system_;
  VirtualClock clock_;
  std::vector<std::pair<LogLevel, std::string>> logged_;
};

TEST_F(ManifestRecorderTest, the_end_is_the_start_and_the_time_since_then) {
  const auto recorder = make().value();
  clock_.advance(std::chrono::milliseconds(4500));
  recorder->summary({});
  const storage::Manifest manifest = read(*recorder);
  ASSERT_TRUE(manifest.summary);
  EXPECT_EQ(manifest.summary->ended_unix_ns - manifest.header.started_unix_ns, 4'500'000'000);
  EXPECT_EQ(manifest.header.run_id, 77U);
}

TEST_F(ManifestRecorderTest, a_run_is_read_back_as_the_event_manager_told_it) {
  const auto recorder = make().value();
  recorder->file(1, 3, "/data/run000042_bu1_i3_0001.h5");
  recorder->winner({1024, 2048}, 2, 0, 1);
  builder::RunSummary summary;
  summary.events_built = 10;
  summary.events_incomplete = 2;
  summary.gaps = 5;
  summary.gap_list = {{7, 12}};
  summary.balanced = true;
  auto& source = summary.sources.emplace_back();
  source.source = {.id = 9, .name = "laser"};
  source.ledger = {.read = 18, .built = 10, .late = 2, .dropped = 5, .lost = 1};
  source.not_fitting = 2;
  source.dropped.resize(static_cast<std::size_t>(wire::DropReason::oversize) + 1);
  source.dropped[static_cast<std::size_t>(wire::DropReason::oversize)] = 3;
  source.missing[static_cast<std::size_t>(wire::MissingReason::lost)] = 1;
  recorder->summary(summary);

  const storage::Manifest manifest = read(*recorder);
  EXPECT_EQ(manifest.header.run, 42U);
  EXPECT_EQ(manifest.header.protocol, "pull");
  ASSERT_EQ(manifest.files.size(), 1U);
  EXPECT_EQ(manifest.files[0].file, "run000042_bu1_i3_0001.h5");
  EXPECT_EQ(manifest.files[0].node, "bu1");
  EXPECT_EQ(manifest.files[0].incarnation, 3U);
  EXPECT_EQ(manifest.files[0].host, "daq-bu1");
  ASSERT_EQ(manifest.winners.size(), 1U);
  EXPECT_EQ(manifest.winners[0].events.first, 1024U);
  EXPECT_EQ(manifest.winners[0].attempt, 2U);
  EXPECT_EQ(manifest.winners[0].node, "bu0");
  ASSERT_TRUE(manifest.summary);
  EXPECT_EQ(manifest.summary->built, 10U);
  EXPECT_EQ(manifest.summary->gaps, 5U);
  ASSERT_EQ(manifest.summary->sources.size(), 1U);
  const storage::ManifestSource& written = manifest.summary->sources[0];
  EXPECT_EQ(written.name, "laser");
  EXPECT_EQ(written.read, 18U);
  EXPECT_EQ(written.late, 2U);
  EXPECT_THAT(
      written.dropped_by_reason,
      ElementsAre(Pair("not_fitting", 2U), Pair(wire::name(wire::DropReason::oversize), 3U)));
  EXPECT_EQ(written.missing, source.missing);
  EXPECT_TRUE(logged_.empty());
}

// They are in `late`.
TEST_F(ManifestRecorderTest, late_fragments_are_no_dropped_ones) {
  const auto recorder = make().value();
  builder::RunSummary summary;
  auto& source = summary.sources.emplace_back();
  source.dropped.resize(static_cast<std::size_t>(wire::DropReason::late) + 1);
  source.dropped[static_cast<std::size_t>(wire::DropReason::late)] = 4;
  recorder->summary(summary);
  EXPECT_TRUE(read(*recorder).summary->sources[0].dropped_by_reason.empty());
}

TEST_F(ManifestRecorderTest, a_run_has_one_manifest) {
  const auto first = make();
  ASSERT_TRUE(first) << first.error().text;
  const auto second = make();
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().kind, ErrorKind::refused);
}

TEST_F(ManifestRecorderTest, a_full_disk_is_said_once_and_made_good_later) {
  const auto recorder = make().value();
  {
    const storage::testing::NoRoom no_room;
    recorder->winner({0, 8}, 1, 0, 1);
    recorder->winner({8, 16}, 1, 1, 1);
    EXPECT_FALSE(recorder->retry());
  }
  ASSERT_EQ(logged_.size(), 1U);
  EXPECT_EQ(logged_[0].first, LogLevel::error);
  EXPECT_THAT(logged_[0].second, HasSubstr("not complete"));
  EXPECT_TRUE(recorder->retry());
  EXPECT_TRUE(recorder->retry());
  ASSERT_EQ(logged_.size(), 2U);
  EXPECT_THAT(logged_[1].second, HasSubstr("complete again"));
  EXPECT_EQ(read(*recorder).winners.size(), 2U);
}

} // namespace
} // namespace fanin::executive
