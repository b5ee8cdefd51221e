// The run's manifest: what is written comes back, and whatever else stands there is an error.
#include <array>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <stdexcept>
#include <string>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fanin/storage/manifest_writer.hpp"
#include "fanin/storage/testing/batch_maker.hpp"
#include "fanin/storage/testing/no_room.hpp"
#include "fanin/storage/verify.hpp"

namespace fanin::storage {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class ManifestTest : public ::testing::Test {
protected:
  ManifestWriter create() const {
    auto writer = ManifestWriter::create(place, header);
    EXPECT_TRUE(writer) << writer.error().text;
    return std::move(*writer);
  }
  // Writes the lines and reads them as a manifest; the error's text.
  std::string error_of(const std::string& lines) const {
    const auto path = directory.path() + "/odd.json";
    std::ofstream(path) << lines;
    const auto manifest = read_manifest(path);
    EXPECT_FALSE(manifest);
    return manifest ? "" : manifest.error().text;
  }
  static std::string content(const std::string& path) {
    std::ifstream file(path);
    return {std::istreambuf_iterator<char>(file), {}};
  }

  testing::TemporaryDirectory directory;
  std::string place = directory.path();
  ManifestHeader header{.run = 42,
                        .protocol = "pull",
                        .integrity = true,
                        .started_unix_ns = 1'763'712'098'000'000'001};
};

TEST_F(ManifestTest, gives_back_what_was_written) {
  auto writer = create();
  EXPECT_EQ(std::filesystem::path(writer.path()).filename(), "run000042.manifest.json");
  ASSERT_TRUE(writer.add(ManifestFile{"bu0", 3, "run000042_bu0_i3_0001.h5"}));
  ASSERT_TRUE(writer.add(ManifestWinner{{~0ULL - 10, ~0ULL}, 65535, "b\"u\\1", 4'000'000'000}));
  ASSERT_TRUE(writer.finish(
      {.built = ~0ULL, .incomplete = 2, .lost = 3, .balanced = true, .ended_unix_ns = 5}));
  const auto manifest = read_manifest(writer.path());
  ASSERT_TRUE(manifest) << manifest.error().text;
  EXPECT_EQ(manifest->header.run, 42U);
  EXPECT_EQ(manifest->header.protocol, "pull");
  EXPECT_TRUE(manifest->header.integrity);
  EXPECT_EQ(manifest->header.started_unix_ns, header.started_unix_ns);
  ASSERT_EQ(manifest->files.size(), 1U);
  EXPECT_EQ(manifest->files[0].node, "bu0");
  EXPECT_EQ(manifest->files[0].incarnation, 3U);
  EXPECT_EQ(manifest->files[0].file, "run000042_bu0_i3_0001.h5");
  ASSERT_EQ(manifest->winners.size(), 1U);
  EXPECT_EQ(manifest->winners[0].events, (EventRange{~0ULL - 10, ~0ULL}));
  EXPECT_EQ(manifest->winners[0].attempt, 65535);
  EXPECT_EQ(manifest->winners[0].node, "b\"u\\1");
  EXPECT_EQ(manifest->winners[0].incarnation, 4'000'000'000U);
  ASSERT_TRUE(manifest->summary);
  EXPECT_EQ(manifest->summary->built, ~0ULL);
  EXPECT_TRUE(manifest->summary->balanced);
}

TEST_F(ManifestTest, says_what_became_of_each_source_and_which_numbers_are_gaps) {
  auto writer = create();
  ManifestSummary summary{.built = 10, .balanced = true, .gaps = 25};
  summary.gap_ranges = {{10, 20}, {30, 45}};
  auto& source = summary.sources.emplace_back();
  source = {.id = 7, .name = "s7", .read = 15, .built = 10, .late = 1, .dropped = 3, .lost = 1};
  source.dropped_by_reason = {{"number_jump", 2}, {"oversize", 1}};
  source.missing[static_cast<std::size_t>(wire::MissingReason::dropped)] = 3;
  ASSERT_TRUE(writer.finish(summary));
  const auto manifest = read_manifest(writer.path());
  ASSERT_TRUE(manifest) << manifest.error().text;
  ASSERT_TRUE(manifest->summary);
  EXPECT_EQ(manifest->summary->gaps, 25U);
  EXPECT_EQ(manifest->summary->gap_ranges, summary.gap_ranges);
  ASSERT_EQ(manifest->summary->sources.size(), 1U);
  const ManifestSource& read = manifest->summary->sources.front();
  EXPECT_EQ(read.name, "s7");
  EXPECT_EQ((std::array{read.read, read.built, read.late, read.dropped, read.lost}),
            (std::array<std::uint64_t, 5>{15, 10, 1, 3, 1}));
  EXPECT_EQ(read.dropped_by_reason, source.dropped_by_reason);
  EXPECT_EQ(read.missing, source.missing);
}

TEST_F(ManifestTest, refuses_gaps_and_sources_that_are_not_as_they_should_be) {
  const std::string head =
      R"({"manifest":"version 1","run":1,"run_id":1,"protocol":"pull","integrity":"none",)"
      R"("started_unix_ns":1})"
      "\n";
  const std::string summary = R"({"summary":{"built":1,"incomplete":0,"lost":0,"balanced":true,)"
                              R"("ended_unix_ns":1,)";
  const std::string gaps = R"("gaps":{"count":0,"ranges":[]},)";
  const std::string source =
      R"({"id":1,"name":"","read":0,"built":0,"late":0,"dropped":0,"lost":0)";
  const std::string counts = gaps + R"("sources":[)" + source;
  for (const std::string& odd : std::vector<std::string>{
           R"("gaps":1)", R"("gaps":{"count":1})", R"("gaps":{"count":1,"ranges":[[2,1]]})",
           R"("gaps":{"count":1,"ranges":[[1,2,3]]})", R"("gaps":{"count":"1","ranges":[]})",
           R"("gaps":{"count":2,"ranges":[[5,6],[1,2]]})", R"("gaps":{"count":0,"ranges":[]})",
           gaps + R"("sources":1)", gaps + R"("sources":[1])", gaps + R"("sources":[{"id":1}])",
           counts + R"(}])", counts + R"(,"dropped_by_reason":{"a":"b"},"missing":{}}])",
           counts + R"(,"dropped_by_reason":{},"missing":{"lost":-1}}])",
           counts + R"(,"dropped_by_reason":1,"missing":{}}])",
           counts + R"(,"dropped_by_reason":{},"missing":1}])",
           // What follows is good, and excuses nothing.
           R"("gaps":1,"sources":[])",
           gaps + R"("sources":[{"id":1},)" + source +
               R"(,"dropped_by_reason":{},"missing":{}}])"}) {
    EXPECT_THAT(error_of(head + summary + odd + "}}\n"), HasSubstr(":2: ")) << odd;
  }
  EXPECT_THAT(error_of(head + R"({"summary":{"gaps":{"count":0,"ranges":[]},"sources":[]}})"
                              "\n"),
              HasSubstr(":2: \"built\""));
}

TEST_F(ManifestTest, refuses_numbers_where_texts_and_yes_or_no_belong) {
  const std::string good =
      R"({"manifest":"version 1","run":1,"run_id":1,"protocol":"pull","integrity":"none",)"
      R"("started_unix_ns":1})"
      "\n"
      R"({"file":"a.h5","node":"bu0","incarnation":1,"host":"here"})"
      "\n"
      R"({"first":1,"end":2,"attempt":0,"node":"bu0","incarnation":1})"
      "\n"
      R"({"summary":{"built":1,"incomplete":0,"lost":0,"balanced":true,)"
      R"("ended_unix_ns":1,"gaps":{"count":0,"ranges":[]},"sources":[]}})"
      "\n";
  ASSERT_TRUE(parse_manifest(good, "good"));
  for (const std::string odd :
       {R"("pull")", R"("none")", R"("a.h5")", R"("bu0")", R"("here")", "true"}) {
    for (auto at = good.find(odd); at != std::string::npos; at = good.find(odd, at + 1)) {
      std::string lines = good;
      EXPECT_THAT(error_of(lines.replace(at, odd.size(), "1")), HasSubstr("missing or invalid"));
    }
  }
}

TEST_F(ManifestTest, leads_to_its_files_where_they_are) {
  const auto found = [&](const std::vector<std::string>& paths, const std::string& here) {
    auto files = find_run_files(paths, [&](const std::string& host) { return host == here; });
    if (files) return fmt::format("{}", fmt::join(files->all(), " "));
    return files.error().text;
  };
  auto writer = create();
  ASSERT_TRUE(writer.add(ManifestFile{"bu0", 1, "a.h5", "left"}));
  ASSERT_TRUE(writer.add(ManifestFile{"bu1", 1, "b.h5", "right"}));
  const auto a = directory.path() + "/a.h5";
  const auto b = directory.path() + "/b.h5";
  EXPECT_EQ(found({writer.path()}, "left"),
            a); // also where it is not there: somebody has to say so
  EXPECT_EQ(found({writer.path()}, "right"), b);
  EXPECT_THAT(found({writer.path()}, "elsewhere"),
              HasSubstr("the files of the run are on left, right: run this there"));
  EXPECT_EQ(found({writer.path(), "/copies/b.h5"}, "left"), "/copies/b.h5 " + a);
  std::ofstream{b} << "a copy";
  EXPECT_EQ(found({writer.path()}, "elsewhere"), b);
  const auto later = directory.path() + "/" + run_file_name(42, "bu2", 1, 1);
  std::ofstream{later} << "begun when the event manager was dead";
  std::ofstream{directory.path() + "/" + run_file_name(43, "bu2", 1, 1)} << "of another run";
  EXPECT_EQ(found({writer.path()}, "elsewhere"), b + " " + later);
  EXPECT_EQ(found({writer.path(), "/copies/b.h5", later}, "elsewhere"), "/copies/b.h5 " + later);
  const auto odd = directory.path() + "/odd.manifest.json";
  std::ofstream(odd) << "?\n";
  EXPECT_EQ(found({odd}, "left"), odd + ":1: not JSON");
}

TEST_F(ManifestTest, refuses_an_integrity_that_it_does_not_know) {
  EXPECT_THAT(
      error_of(
          R"({"manifest":"version 1","run":1,"run_id":1,"protocol":"pull","integrity":"crc32d",)"
          R"("started_unix_ns":1})"
          "\n"),
      HasSubstr("\"integrity\" is not known: crc32d"));
}

TEST_F(ManifestTest, takes_times_of_a_clock_that_is_set_before_1970) {
  header.started_unix_ns = std::numeric_limits<std::int64_t>::min();
  auto writer = create();
  ASSERT_TRUE(writer.finish({.balanced = true, .ended_unix_ns = -1}));
  const auto manifest = read_manifest(writer.path());
  ASSERT_TRUE(manifest) << manifest.error().text;
  EXPECT_EQ(manifest->header.started_unix_ns, header.started_unix_ns);
  ASSERT_TRUE(manifest->summary);
  EXPECT_EQ(manifest->summary->ended_unix_ns, -1);
  EXPECT_THAT(
      error_of(R"({"manifest":"version 1","run":1,"run_id":1,"protocol":"pull","integrity":"none",)"
               R"("started_unix_ns":9223372036854775808})"
               "\n"),
      HasSubstr("\"started_unix_ns\""));
}

TEST_F(ManifestTest, is_read_up_to_any_byte_it_was_cut_at) {
  auto writer = create();
  ASSERT_TRUE(writer.add(ManifestFile{"bu0", 1, "a.h5"}));
  ASSERT_TRUE(writer.add(ManifestWinner{{0, 8}, 1, "bu0", 1}));
  const auto whole = content(writer.path());
  const auto first_line = whole.find('\n') + 1;
  const auto cut_path = directory.path() + "/cut.json";
  for (auto size = first_line; size <= whole.size(); ++size) {
    std::ofstream(cut_path) << whole.substr(0, size);
    const auto manifest = read_manifest(cut_path);
    ASSERT_TRUE(manifest) << size << ": " << manifest.error().text;
    EXPECT_EQ(manifest->winners.size(), size == whole.size() ? 1U : 0U);
  }
  std::ofstream(cut_path) << whole.substr(0, first_line - 1);
  EXPECT_FALSE(read_manifest(cut_path));
}

TEST_F(ManifestTest, tells_a_torn_line_that_was_written_again_from_a_damaged_one) {
  const auto path = directory.path() + "/torn.json";
  auto writer = create();
  ASSERT_TRUE(writer.add(ManifestFile{"bu0", 1, "a.h5"}));
  const auto whole = content(writer.path());
  const auto read = [&](const std::string& lines) {
    std::ofstream(path, std::ios::trunc) << whole << lines;
    auto manifest = read_manifest(path);
    if (!manifest) throw std::runtime_error(manifest.error().text);
    return std::move(*manifest);
  };
  const std::string b = R"({"file":"b.h5","node":"bu0","incarnation":1})";
  const std::string c = R"({"file":"c.h5","node":"bu0","incarnation":1})";
  // As a full disk leaves it that does not let the file be cut: all since the last good write
  // again.
  const auto torn = read(c + "\n" + b.substr(0, 20) + "\n" + c + "\n" + b + "\n");
  EXPECT_EQ(torn.files.size(), 4U);
  EXPECT_THAT(torn.damage, IsEmpty());
  EXPECT_THAT(torn.notes, ElementsAre(path + ":4: torn, and written again below"));
  // Of what was written before it says nothing, nor does another line.
  const auto damaged = read(b + "\n" + b.substr(0, 20) + "\n" + c + "\n" + b.substr(1) + "\n");
  EXPECT_EQ(damaged.files.size(), 3U);
  EXPECT_THAT(damaged.notes, IsEmpty());
  EXPECT_THAT(damaged.damage, ElementsAre(HasSubstr(path + ":4: the line is damaged"),
                                          HasSubstr(path + ":6: the line is damaged")));
  std::string many;
  for (int i = 0; i < 101; ++i) many += "?\n";
  EXPECT_THAT(error_of(whole + many), HasSubstr(":103: not JSON"));
}

TEST_F(ManifestTest, of_a_run_without_events_names_no_files) {
  auto writer = ManifestWriter::create(directory.path(), {.run = 7});
  ASSERT_TRUE(writer);
  const std::string path = directory.path() + "/" + manifest_name(7);
  const auto here = [](const std::string&) { return true; };
  const auto unfinished = find_run_files({path}, here);
  ASSERT_FALSE(unfinished);
  EXPECT_THAT(unfinished.error().text, HasSubstr("the run has no files"));
  ASSERT_TRUE(writer->finish({.built = 0, .balanced = true}));
  const auto found = find_run_files({path}, here);
  ASSERT_TRUE(found) << found.error().text;
  EXPECT_TRUE(found->files.empty());
  const auto result = verify(found->files, {.manifests = found->manifests});
  ASSERT_TRUE(result) << result.error().text;
  EXPECT_TRUE(result->good());
  EXPECT_EQ(result->events, 0U);
}

TEST_F(ManifestTest, of_a_run_with_events_names_files) {
  auto writer = create();
  ASSERT_TRUE(writer.finish({.built = 1}));
  const auto found = find_run_files({writer.path()}, [](const std::string&) { return true; });
  ASSERT_FALSE(found);
  EXPECT_THAT(found.error().text, HasSubstr("the run has no files"));
}

TEST_F(ManifestTest, is_never_overwritten) {
  const auto writer = create();
  const auto again = ManifestWriter::create(directory.path(), header);
  ASSERT_FALSE(again);
  EXPECT_EQ(again.error().kind, ErrorKind::refused);
  EXPECT_THAT(again.error().text, HasSubstr("never overwritten"));
}

TEST_F(ManifestTest, a_full_disk_leaves_no_file_that_blocks_the_run_number) {
  {
    const testing::NoRoom no_room;
    EXPECT_FALSE(ManifestWriter::create(directory.path(), header));
  }
  EXPECT_TRUE(std::filesystem::is_empty(directory.path()));
  EXPECT_TRUE(ManifestWriter::create(directory.path(), header));
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(directory.path()), {}), 1);
}

TEST_F(ManifestTest, lines_that_a_full_disk_refuses_are_written_when_there_is_room_again) {
  auto writer = create();
  {
    const testing::NoRoom no_room;
    EXPECT_FALSE(writer.add(ManifestFile{"bu0", 1, "a.h5"}));
    no_room.allow(std::filesystem::file_size(writer.path()) + 10); // room for a part of it
    EXPECT_FALSE(writer.add(ManifestWinner{{0, 8}, 1, "bu0", 1}));
    EXPECT_FALSE(writer.flush());
    const auto so_far = read_manifest(writer.path());
    ASSERT_TRUE(so_far);
    EXPECT_TRUE(so_far->files.empty());
    EXPECT_FALSE(writer.finish({.built = 8}));
  }
  EXPECT_TRUE(writer.flush());
  EXPECT_TRUE(writer.flush()); // there is nothing left to do
  const auto manifest = read_manifest(writer.path());
  ASSERT_TRUE(manifest) << manifest.error().text;
  EXPECT_EQ(manifest->files.size(), 1U);
  EXPECT_EQ(manifest->winners.size(), 1U);
  ASSERT_TRUE(manifest->summary);
  EXPECT_EQ(manifest->summary->built, 8U);
  EXPECT_TRUE(manifest->notes.empty());
}

TEST_F(ManifestTest, that_was_removed_with_its_folder_is_written_again_whole) {
  place = directory.path() + "/here";
  std::filesystem::create_directory(place);
  auto writer = create();
  for (int i = 0; i < 2000; ++i) ASSERT_TRUE(writer.add(ManifestFile{"bu0", 1, "a.h5"}));
  EXPECT_TRUE(writer.intact());
  std::filesystem::remove_all(place);
  EXPECT_FALSE(writer.intact());
  ASSERT_TRUE(writer.restore());
  EXPECT_TRUE(writer.intact());
  ASSERT_TRUE(writer.finish({.built = 8}));
  const auto manifest = read_manifest(writer.path());
  ASSERT_TRUE(manifest) << manifest.error().text;
  EXPECT_EQ(manifest->files.size(), 2000U);
  EXPECT_TRUE(manifest->summary);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(place), {}), 1);
}

TEST_F(ManifestTest, that_was_cut_is_written_again_whole) {
  auto writer = create();
  for (int i = 0; i < 20; ++i) ASSERT_TRUE(writer.add(ManifestFile{"bu0", 1, "a.h5"}));
  const auto whole = content(writer.path());
  for (const auto size : {whole.size() / 2, std::size_t{0}, whole.size() - 1}) {
    std::filesystem::resize_file(writer.path(), size);
    EXPECT_FALSE(writer.intact()) << size;
    ASSERT_TRUE(writer.restore()) << size;
    EXPECT_TRUE(writer.intact()) << size;
    EXPECT_EQ(content(writer.path()), whole);
  }
  std::filesystem::resize_file(writer.path(), 0);
  ASSERT_TRUE(writer.add(ManifestFile{"bu0", 2, "b.h5"}));
  EXPECT_FALSE(writer.intact()) << "and has a line again";
}

TEST_F(ManifestTest, that_was_replaced_does_not_replace_the_other) {
  auto writer = create();
  std::filesystem::remove(writer.path());
  std::ofstream(writer.path()) << "of somebody else";
  EXPECT_FALSE(writer.intact());
  EXPECT_FALSE(writer.restore());
  EXPECT_EQ(content(writer.path()), "of somebody else");
  std::filesystem::remove(writer.path());
  ASSERT_TRUE(writer.restore());
  EXPECT_TRUE(read_manifest(writer.path()));
}

TEST_F(ManifestTest, lines_that_wait_for_room_are_bounded) {
  auto writer = create();
  const ManifestWinner winner{{0, 8}, 1, std::string(1U << 20, 'n'), 1};
  {
    const testing::NoRoom no_room;
    for (int i = 0; i < 20; ++i) EXPECT_FALSE(writer.add(winner));
  }
  const auto late = writer.flush();
  ASSERT_FALSE(late);
  EXPECT_THAT(late.error().text, HasSubstr("5 lines were left out"));
  EXPECT_EQ(read_manifest(writer.path())->winners.size(), 15U);
}

TEST(RunOf, knows_the_names_of_run_files_and_manifests_and_no_others) {
  EXPECT_EQ(run_of("run000042.manifest.json"), 42U);
  EXPECT_EQ(run_of("run000042_bu0_i1_0001.h5"), 42U);
  EXPECT_EQ(run_of("run4294967295_left_i2_of_i17_10001.h5"), 4294967295U);
  for (const auto* name :
       {"run4294967295_x.h5", "run4294967296.manifest.json", "run42.manifest.json", "run.h5", "run",
        "run000042", "run000042.h5", "run000042_bu0_i1_0001.h5.bak", "run000042_bu0_i_0001.h5",
        "run000042_bu0_i1_.h5", "run000042_i1_0001.h5", "run42_bu0_i1_0001.h5",
        "run000042_bu0_i1_0001.hd", "run000042_bu0_i1x0001.h5", "run000042_bu0_x1_0001.h5",
        ".run000042_bu0_i1_0001.h5.17", ""}) {
    EXPECT_FALSE(run_of(name)) << name;
  }
}

TEST_F(ManifestTest, names_file_and_line_of_what_it_does_not_know) {
  const std::string first =
      R"({"manifest":"version 1","run":1,"run_id":1,"protocol":"push","integrity":"crc32c",)"
      R"("started_unix_ns":0,"fanin":"0.1.0"})"
      "\n";
  const auto path = directory.path() + "/odd.json";
  EXPECT_EQ(error_of("{]\n"), path + ":1: not JSON");
  EXPECT_EQ(error_of(first + "17\n"), path + ":2: not an object");
  EXPECT_THAT(error_of(first + "{\"first\":-1,\"end\":2}\n"),
              HasSubstr(":2: \"first\" is missing"));
  EXPECT_THAT(error_of(first + R"({"first":1,"end":2,"attempt":65536,"node":"a","incarnation":1})"
                               "\n"),
              HasSubstr("\"attempt\""));
  EXPECT_THAT(error_of(first + R"({"first":2,"end":2,"attempt":1,"node":"a","incarnation":1})"
                               "\n"),
              HasSubstr("\"end\" is not after"));
  EXPECT_THAT(error_of(first + "{\"summary\":7}\n"), HasSubstr("is not an object"));
  EXPECT_THAT(error_of(R"({"manifest":1,"run":1})"
                       "\n"),
              HasSubstr(":1: a manifest of format 1, and this fanin reads \"version 1\": use the "
                        "fanin that wrote it"));
  EXPECT_THAT(error_of("[]\n"), HasSubstr(":1: not the manifest"));
  EXPECT_THAT(error_of(""), HasSubstr("empty"));
  EXPECT_EQ(read_manifest(directory.path() + "/none").error().kind, ErrorKind::not_found);
}

} // namespace
} // namespace fanin::storage
