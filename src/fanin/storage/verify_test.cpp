// verify and inspect: what is wrong is found and named, what is normal is not, and no file is too
// broken to be looked at.
#include <array>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include <sys/stat.h>

#include <fmt/core.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fanin/base/attempt.hpp"
#include "fanin/base/random.hpp"
#include "fanin/storage/detail/hdf5.hpp"
#include "fanin/storage/inspect.hpp"
#include "fanin/storage/manifest_writer.hpp"
#include "fanin/storage/run_file_reader.hpp"
#include "fanin/storage/run_file_writer.hpp"
#include "fanin/storage/testing/batch_maker.hpp"
#include "fanin/storage/verify.hpp"

namespace fanin::storage {
namespace {

using testing::BatchMaker;
using ::testing::ElementsAre;
using testing::FragmentPlan;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::make_sources;
using ::testing::Not;
using testing::payload_of;
using testing::TemporaryDirectory;
using testing::varied_plan;

struct Part {
  EventRange events;
  Attempt attempt = 0;
  std::vector<EventRange> gaps{};
};

class Verify : public ::testing::Test {
protected:
  // A finished file of one node; its path.
  std::string write(const std::string& node, const std::vector<Part>& parts,
                    std::uint32_t part_number = 1, const testing::Plan& plan = varied_plan) {
    auto writer = RunFileWriter::create({.directory = directory.path(),
                                         .run = 7,
                                         .run_id = run_id,
                                         .node = node,
                                         .incarnation = incarnation,
                                         .sources = maker.sources(),
                                         .integrity = integrity,
                                         .started_unix_ns = 1'700'000'000'000'000'000,
                                         .bytes_chunk = 16384,
                                         .rows_chunk = 64},
                                        part_number);
    if (!writer) throw std::runtime_error(writer.error().text);
    for (const auto& part : parts) {
      auto batch = maker.make(0, part.events, plan, part.attempt);
      batch.gaps = part.gaps;
      const std::array group = {&batch};
      if (!(*writer)->append(group)) throw std::runtime_error("append");
    }
    if (!(*writer)->close()) throw std::runtime_error("close");
    return (*writer)->path();
  }
  // Of the files of bu0 and bu1.
  void write_manifest(const std::vector<ManifestWinner>& winners, const ManifestSummary& summary) {
    std::filesystem::remove(directory.path() + "/" + manifest_name(7));
    auto manifest =
        ManifestWriter::create(directory.path(), {.run = 7, .run_id = 70, .protocol = "pull"});
    if (!manifest) throw std::runtime_error(manifest.error().text);
    for (const auto* const node : {"bu0", "bu1"}) {
      const auto name = run_file_name(7, node, 1, 1);
      if (!std::filesystem::exists(directory.path() + "/" + name)) continue;
      EXPECT_TRUE(manifest->add(ManifestFile{node, 1, name}));
    }
    for (const auto& winner : winners) EXPECT_TRUE(manifest->add(winner));
    EXPECT_TRUE(manifest->finish(summary));
  }
  static VerifyResult check(const std::vector<std::string>& files,
                            const VerifyOptions& options = {}) {
    const auto result = verify(files, options);
    if (!result) throw std::runtime_error(result.error().text);
    return *result;
  }
  static std::string content(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  static void put(const std::string& path, const std::string& bytes) {
    std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
  }

  TemporaryDirectory directory;
  BatchMaker maker{make_sources(3)};
  std::uint64_t run_id = 70; // of the files that are written
  Incarnation incarnation = 1; // likewise
  bool integrity = true;
};

TEST_F(Verify, compares_gaps_and_sources_with_the_manifest) {
  const auto plan = [](EventNumber event, SourceId source) -> FragmentPlan {
    const bool absent = event == 5 && source == 20;
    return {.absent = absent, .size = absent ? 0U : 10U};
  };
  const auto file = write("bu0", {{{0, 100}}, {{200, 300}, 0, {{100, 150}, {150, 200}}}}, 1, plan);
  ManifestSummary good{.built = 200,
                       .incomplete = 1,
                       .balanced = true,
                       .gaps = 1100,
                       .gap_ranges = {{100, 200}, {300, 1300}}}; // of the last one nobody is told
  for (const SourceId id : {10U, 20U, 30U}) {
    auto& source = good.sources.emplace_back();
    source.id = id;
    source.built = id == 20 ? 199 : 200;
    if (id == 20) source.missing[static_cast<std::size_t>(wire::MissingReason::absent)] = 1;
  }
  const auto problems = [&](const std::function<void(ManifestSummary&)>& change) {
    ManifestSummary summary = good;
    change(summary);
    write_manifest({}, summary);
    return check({file}).problems;
  };
  EXPECT_THAT(problems([](ManifestSummary&) {}), IsEmpty());
  EXPECT_THAT(problems([](ManifestSummary& summary) {
                summary.gap_ranges[0].end = 199;
                summary.gaps = 1099;
              }),
              ElementsAre(HasSubstr("the manifest's next one is 100 to 198, and that of the files "
                                    "is 100 to 199")));
  EXPECT_THAT(problems([](ManifestSummary& summary) {
                summary.gap_ranges.erase(summary.gap_ranges.begin());
                summary.gaps = 1000;
              }),
              ElementsAre(HasSubstr("is none")));
  EXPECT_THAT(problems([](ManifestSummary& summary) { summary.gap_ranges.pop_back(); }), IsEmpty());
  EXPECT_THAT(problems([](ManifestSummary& summary) { ++summary.sources[2].built; }),
              ElementsAre(HasSubstr("source 0x1e: the manifest counts 201 fragments built, and the "
                                    "files hold 200")));
  EXPECT_THAT(problems([](ManifestSummary& summary) {
                std::swap(summary.sources[1].missing[1], summary.sources[1].missing[4]);
              }),
              ElementsAre(HasSubstr("(absent), and the files hold 1"),
                          HasSubstr("(dropped), and the files hold 0")));
}

TEST_F(Verify, finds_nothing_wrong_where_nothing_is) {
  const auto a = write("bu0", {{{0, 100}}, {{200, 300}}});
  const auto b = write("bu1", {{{100, 200}}});
  std::uint64_t last = 0;
  std::uint64_t all = 1;
  const auto result = check({a, b}, {.progress = [&](std::uint64_t done, std::uint64_t total) {
                              EXPECT_GE(done, last);
                              EXPECT_LE(done, total);
                              last = done;
                              all = total;
                            }});
  EXPECT_TRUE(result.good());
  EXPECT_EQ(result.events, 300U);
  EXPECT_EQ(result.complete, 300U);
  EXPECT_EQ(result.incomplete, 0U);
  EXPECT_EQ(result.superseded, 0U);
  EXPECT_EQ(result.fragments, 900U);
  EXPECT_EQ(result.files, 2U);
  EXPECT_THAT(result.problems, IsEmpty());
  EXPECT_THAT(result.notes, IsEmpty());
  EXPECT_GT(last, 0U);
}

TEST_F(Verify, names_the_sources_that_incomplete_events_lack) {
  const auto plan = [](EventNumber event, SourceId source) {
    return FragmentPlan{.absent = event == 3 && source == 20,
                        .size = event == 3 && source == 20 ? 0U : 9U};
  };
  const auto result = check({write("bu0", {{{0, 10}}}, 1, plan)});
  EXPECT_TRUE(result.good());
  EXPECT_EQ(result.complete, 9U);
  EXPECT_EQ(result.incomplete, 1U);
  EXPECT_THAT(result.missing,
              ElementsAre(HasSubstr("event 3 lacks source 0x14 (source-20), absent")));
}

TEST_F(Verify, names_neither_optional_sources_nor_events_that_lack_nothing) {
  auto sources = make_sources(3);
  sources[2].required = false;
  maker = BatchMaker(sources);
  const auto plan = [](EventNumber event, SourceId source) {
    const bool absent = (source == 20 && (event == 2 || event == 5 || event == 6)) ||
                        (source == 10 && event == 7) ||
                        (source == 30 && (event == 4 || event == 6));
    return FragmentPlan{.absent = absent, .size = absent ? 0U : 9U};
  };
  const auto result = check({write("bu0", {{{0, 10}}}, 1, plan)});
  EXPECT_THAT(result.problems, IsEmpty());
  EXPECT_EQ(result.incomplete, 4U);
  EXPECT_THAT(result.missing,
              ElementsAre("run 7: events 2, 5 to 6 lack source 0x14 (source-20), absent",
                          "run 7: event 7 lacks source 0xa (source-10), absent"));
}

// As builder units take batches in turn.
TEST_F(Verify, says_in_one_line_what_is_missing_over_several_files) {
  const auto plan = [](EventNumber event, SourceId source) {
    const bool absent = source == 20 && event >= 50;
    return FragmentPlan{.absent = absent, .size = absent ? 0U : 9U};
  };
  const auto result = check({write("bu0", {{{0, 100}}, {{200, 300}}}, 1, plan),
                             write("bu1", {{{100, 200}}, {{300, 400}}}, 1, plan)});
  EXPECT_EQ(result.incomplete, 350U);
  EXPECT_THAT(result.missing,
              ElementsAre("run 7: events 50 to 399 lack source 0x14 (source-20), absent"));
}

TEST_F(Verify, names_the_first_ranges_of_many) {
  const auto plan = [](EventNumber event, SourceId source) {
    const bool absent = source == 20 && event % 2 == 1;
    return FragmentPlan{.absent = absent, .size = absent ? 0U : 9U};
  };
  const auto result = check({write("bu0", {{{0, 100}}}, 1, plan)});
  EXPECT_THAT(result.missing,
              ElementsAre("run 7: events 1, 3, 5, 7, 9, 11, 13, 15 and 42 more ranges lack source "
                          "0x14 (source-20), absent"));
}

TEST_F(Verify, takes_a_file_of_one_event) {
  const auto result = check({write("bu0", {{{7, 8}}})});
  EXPECT_THAT(result.problems, IsEmpty());
  EXPECT_EQ(result.complete, 1U);
}

TEST_F(Verify, finds_a_byte_that_has_changed) {
  const auto path = write("bu0", {{{0, 50}}});
  auto bytes = content(path);
  const auto payload = payload_of(17, 20, varied_plan(17, 20).size);
  ASSERT_GT(payload.size(), 16U);
  const std::string needle(reinterpret_cast<const char*>(payload.data()), payload.size());
  const auto at = bytes.find(needle);
  ASSERT_NE(at, std::string::npos);
  bytes[at + 5] = static_cast<char>(bytes[at + 5] ^ 1);
  put(path, bytes);
  const auto result = check({path});
  EXPECT_FALSE(result.good());
  EXPECT_EQ(result.crc_errors, 1U);
  EXPECT_EQ(result.events, 50U);
  EXPECT_THAT(result.problems,
              ElementsAre(HasSubstr("event 17, source 0x14 (source-20): checksum")));
  const auto text = inspect_event(path, 17);
  ASSERT_TRUE(text);
  EXPECT_THAT(*text, HasSubstr("BAD"));
}

TEST_F(Verify, checks_no_checksum_of_a_run_that_made_none) {
  integrity = false;
  const auto path = write("bu0", {{{0, 50}}});
  auto bytes = content(path);
  const auto payload = payload_of(17, 20, varied_plan(17, 20).size);
  const auto at = bytes.find({reinterpret_cast<const char*>(payload.data()), payload.size()});
  ASSERT_NE(at, std::string::npos);
  bytes[at + 5] = static_cast<char>(bytes[at + 5] ^ 1);
  put(path, bytes);
  EXPECT_TRUE(check({path}).good());
}

TEST_F(Verify, reads_payloads_across_the_blocks_in_which_it_reads) {
  const auto plan = [](EventNumber, SourceId source) {
    return FragmentPlan{.absent = source != 20, .size = source != 20 ? 0U : 3U << 20};
  };
  const auto path = write("bu0", {{{0, 1}}, {{1, 2}}, {{2, 3}}}, 1, plan);
  std::vector<std::uint64_t> steps;
  const auto result = check(
      {path}, {.progress = [&](std::uint64_t done, std::uint64_t) { steps.push_back(done); }});
  EXPECT_THAT(result.problems, IsEmpty());
  EXPECT_EQ(result.bytes, 9U << 20);
  EXPECT_EQ(result.crc_errors, 0U);
  EXPECT_EQ(steps.back(), 9U << 20);
  EXPECT_GT(steps.size(), 1U);
}

TEST_F(Verify, reads_again_what_a_row_claims_that_points_back) {
  const auto plan = [](EventNumber event, SourceId source) {
    const bool absent = source != 20;
    return FragmentPlan{.absent = absent, .size = absent ? 0U : event == 2 ? 10U : 3U << 20};
  };
  const auto path = write("bu0", {{{0, 1}}, {{1, 2}}, {{2, 3}}}, 1, plan);
  FragmentRow row;
  ASSERT_TRUE((*RunFileReader::open(path))->read_fragments(2, {&row, 1}));
  const auto bytes_of = [&] {
    return std::string(reinterpret_cast<const char*>(&row), sizeof row);
  };
  auto bytes = content(path);
  const auto at = bytes.find(bytes_of());
  ASSERT_NE(at, std::string::npos);
  row.offset = (3U << 20) + 1; // a window of 4 MiB is read, then the next
  bytes.replace(at, sizeof row, bytes_of());
  put(path, bytes);
  EXPECT_THAT(check({path}).problems,
              ElementsAre(HasSubstr("event 2, source 0x14 (source-20): checksum of its 10 bytes")));
}

// One copy counts, and they are told apart by attempt alone.
TEST_F(Verify, keeps_attempts_apart_that_follow_each_other_in_one_file) {
  const auto a = write("bu0", {{{0, 100}, 0}, {{100, 200}, 1}});
  const auto b = write("bu1", {{{100, 200}, 0}});
  const auto result = check({a, b});
  EXPECT_THAT(result.problems, IsEmpty());
  EXPECT_EQ(result.events, 200U);
  EXPECT_EQ(result.superseded, 100U);
}

TEST_F(Verify, lets_the_highest_attempt_win_where_no_manifest_says) {
  const auto a = write("bu0", {{{0, 100}, 0}, {{100, 200}, 0}});
  const auto b = write("bu1", {{{100, 200}, 1}});
  const auto result = check({a, b});
  EXPECT_TRUE(result.good());
  EXPECT_EQ(result.events, 200U);
  EXPECT_EQ(result.superseded, 100U);
  EXPECT_EQ(result.duplicates, 0U);
}

TEST_F(Verify, lets_the_attempt_after_65535_win) {
  const auto plan = [](EventNumber, SourceId source) {
    return FragmentPlan{.absent = source == 10, .size = source == 10 ? 0U : 5U};
  };
  const auto a = write("bu0", {{{0, 100}, 65535}}, 1, plan);
  const auto b = write("bu1", {{{0, 100}, next_attempt(65535)}});
  auto manifest =
      ManifestWriter::create(directory.path(), {.run = 7, .run_id = 70, .protocol = "pull"});
  ASSERT_TRUE(manifest);
  for (const auto& [node, path] : {std::pair("bu1", b), std::pair("bu0", a)})
    ASSERT_TRUE(manifest->add(ManifestFile{node, 1, std::filesystem::path(path).filename()}));
  const auto result = check({a, b});
  EXPECT_EQ(result.complete, 100U);
  EXPECT_EQ(result.superseded, 100U);
  EXPECT_EQ(result.duplicates, 0U);
  const auto event = inspect_event(manifest->path(), 50);
  ASSERT_TRUE(event) << event.error().text;
  EXPECT_THAT(*event, HasSubstr("complete; attempt 1, incarnation 1 of bu1"));
}

TEST_F(Verify, lets_the_manifest_say_who_wins) {
  const auto plan = [](EventNumber, SourceId source) {
    return FragmentPlan{.absent = source == 10, .size = source == 10 ? 0U : 5U};
  };
  const auto a = write("bu0", {{{0, 100}, 0}, {{100, 200}, 0}});
  const auto b = write("bu1", {{{100, 200}, 1}}, 1, plan); // incomplete, and not acknowledged
  auto manifest =
      ManifestWriter::create(directory.path(), {.run = 7, .run_id = 70, .protocol = "pull"});
  ASSERT_TRUE(manifest);
  ASSERT_TRUE(manifest->add(ManifestFile{"bu0", 1, std::filesystem::path(a).filename()}));
  ASSERT_TRUE(manifest->add(ManifestFile{"bu1", 1, std::filesystem::path(b).filename()}));
  ASSERT_TRUE(manifest->add(ManifestWinner{{100, 200}, 1, "bu1", 1}));
  ASSERT_TRUE(manifest->add(ManifestWinner{{100, 150}, 0, "bu0", 1})); // a later line overrules
  ASSERT_TRUE(manifest->add(ManifestWinner{{150, 200}, 0, "bu0", 1}));
  ASSERT_TRUE(manifest->finish({.built = 200, .balanced = true}));
  auto result = check({a, b});
  EXPECT_TRUE(result.good()) << result.problems.front();
  EXPECT_EQ(result.events, 200U);
  EXPECT_EQ(result.complete, 200U);
  EXPECT_EQ(result.superseded, 100U);
  EXPECT_EQ(result.duplicates, 0U);
  const auto event = inspect_event(manifest->path(), 120);
  ASSERT_TRUE(event) << event.error().text;
  EXPECT_THAT(*event, HasSubstr("complete; attempt 0, incarnation 1 of bu0"));
  const auto none = inspect_event(manifest->path(), 200);
  ASSERT_FALSE(none);
  EXPECT_THAT(none.error().text, HasSubstr("none of the run's 2 files has an event 200"));
  // With a file left out, that is said, and the copy at hand counts.
  result = check({b});
  EXPECT_TRUE(result.good());
  EXPECT_EQ(result.events, 100U);
  EXPECT_EQ(result.incomplete, 100U);
  EXPECT_THAT(result.notes, ElementsAre(HasSubstr("bu0_i1_0001.h5 belongs to the run")));
  EXPECT_THAT(result.missing,
              ElementsAre(HasSubstr("events 100 to 199 lack source 0xa (source-10)")));
}

TEST_F(Verify, misses_what_was_acknowledged_and_is_not_there) {
  const auto a = write("bu0", {{{0, 100}, 0}});
  auto manifest =
      ManifestWriter::create(directory.path(), {.run = 7, .run_id = 70, .protocol = "pull"});
  ASSERT_TRUE(manifest);
  ASSERT_TRUE(manifest->add(ManifestFile{"bu0", 1, std::filesystem::path(a).filename()}));
  ASSERT_TRUE(manifest->add(ManifestWinner{{40, 60}, 1, "bu1", 1}));
  ASSERT_TRUE(manifest->finish({.built = 101, .balanced = true}));
  const auto result = check({a});
  EXPECT_FALSE(result.good());
  EXPECT_THAT(
      result.problems,
      ElementsAre(HasSubstr("events 40 to 59: the copy that was acknowledged, attempt 1 of bu1"),
                  HasSubstr("counts 101 events built, and the files hold 100")));
}

TEST_F(Verify, a_forced_end_leaves_events_that_are_stored_and_not_acknowledged) {
  const auto plan = [](EventNumber event, SourceId source) {
    const bool absent = event == 95 && source == 10;
    return FragmentPlan{.absent = absent, .size = absent ? 0U : 5U};
  };
  const auto a = write("bu0", {{{0, 100}}}, 1, plan);
  // Of the events below 120 those below 90 were acknowledged, and the others count as lost.
  write_manifest({}, {.built = 90, .lost = 30, .balanced = true});
  auto result = check({a});
  EXPECT_THAT(result.problems, IsEmpty());
  EXPECT_EQ(result.events, 100U);
  EXPECT_EQ(result.incomplete, 1U);
  EXPECT_THAT(result.notes, ElementsAre(HasSubstr("10 of the 30 events that it counts as lost")));
  write_manifest({}, {.built = 100, .incomplete = 1, .lost = 5, .balanced = true});
  result = check({a});
  EXPECT_TRUE(result.good());
  EXPECT_THAT(result.notes, ElementsAre(HasSubstr("the run lost 5 events that no file has")));
  // What no loss explains is still wrong.
  write_manifest({}, {.built = 90, .lost = 9, .balanced = true});
  EXPECT_THAT(check({a}).problems, ElementsAre(HasSubstr("counts 90 events built")));
  write_manifest({}, {.built = 101, .incomplete = 1, .lost = 30, .balanced = true});
  EXPECT_THAT(check({a}).problems, ElementsAre(HasSubstr("counts 101 events built")));
  write_manifest({}, {.built = 90, .incomplete = 2, .lost = 30, .balanced = true});
  EXPECT_THAT(check({a}).problems, ElementsAre(HasSubstr("counts 2 incomplete events")));
}

TEST_F(Verify, compares_gaps_only_where_the_manifest_has_them_all_and_nothing_was_lost) {
  const auto absent_50_to_60 = [](EventNumber event, SourceId) {
    const bool absent = event >= 50 && event < 60;
    return FragmentPlan{.absent = absent, .size = absent ? 0U : 5U};
  };
  const auto cut = write("bu0", {{{0, 50}}, {{60, 100}}}); // which says nothing of 50 to 59
  const auto problems = [&](const std::string& file, const ManifestSummary& summary) {
    write_manifest({}, summary);
    return check({file}).problems;
  };
  ManifestSummary summary{.built = 90, .balanced = true, .gaps = 10, .gap_ranges = {{50, 60}}};
  EXPECT_THAT(problems(cut, summary), ElementsAre(HasSubstr("that of the files is none")));
  summary.lost = 1;
  EXPECT_THAT(problems(cut, summary), IsEmpty());
  summary.lost = 0;
  summary.gaps = 11; // it names the first ones
  EXPECT_THAT(problems(cut, summary), IsEmpty());
  std::filesystem::remove(cut);
  const auto whole = write("bu0", {{{0, 100}, 0, {{50, 60}}}}, 1, absent_50_to_60);
  summary.gaps = 10;
  EXPECT_THAT(problems(whole, summary), IsEmpty());
  summary.gap_ranges = {{49, 60}};
  summary.gaps = 11;
  EXPECT_THAT(problems(whole, summary), ElementsAre(HasSubstr("is 49 to 59, and that of the")));
}

TEST_F(Verify, counts_gaps_that_lie_apart) {
  const auto plan = [](EventNumber event, SourceId) {
    const bool absent = (event >= 20 && event < 30) || (event >= 50 && event < 60);
    return FragmentPlan{.absent = absent, .size = absent ? 0U : 5U};
  };
  EXPECT_EQ(check({write("bu0", {{{0, 100}, 0, {{20, 30}, {50, 60}}}}, 1, plan)}).gaps, 20U);
}

TEST_F(Verify, says_that_a_run_has_not_ended_and_which_manifest_is_none) {
  const auto file = write("bu0", {{{0, 100}}});
  auto manifest =
      ManifestWriter::create(directory.path(), {.run = 7, .run_id = 70, .protocol = "pull"});
  ASSERT_TRUE(manifest && manifest->add(ManifestFile{"bu0", 1, run_file_name(7, "bu0", 1, 1)}));
  auto result = check({file});
  EXPECT_THAT(result.problems, IsEmpty());
  EXPECT_THAT(result.notes, ElementsAre(HasSubstr("the run did not end in good order")));
  const auto odd = directory.path() + "/odd.manifest.json";
  put(odd, "?\n");
  EXPECT_THAT(check({file}, {.manifests = {odd}}).problems, ElementsAre(odd + ":1: not JSON"));
}

// Its readout units died between the two attempts, so the second one found no event.
TEST_F(Verify, the_copy_that_was_acknowledged_may_say_that_there_is_no_event) {
  const auto plan = [](EventNumber event, SourceId) {
    const bool absent = event >= 60 && event < 70;
    return FragmentPlan{.absent = absent, .size = absent ? 0U : 5U};
  };
  const auto a = write("bu0", {{{0, 100}, 0}});
  const auto b = write("bu1", {{{40, 100}, 1, {{60, 70}}}}, 1, plan);
  write_manifest({{{40, 100}, 1, "bu1", 1}},
                 {.built = 90, .balanced = true, .gaps = 10, .gap_ranges = {{60, 70}}});
  const auto result = check({a, b});
  EXPECT_THAT(result.problems, IsEmpty());
  EXPECT_EQ(result.events, 90U);
  EXPECT_EQ(result.superseded, 60U);
  EXPECT_EQ(result.gaps, 10U);
  const auto event = inspect_event(directory.path() + "/" + manifest_name(7), 65);
  ASSERT_FALSE(event);
  EXPECT_THAT(event.error().text, HasSubstr("no source has event 65"));
}

// The incomplete copy is in its file alone, so it shows whose copy counts.
TEST_F(Verify, the_manifest_means_one_attempt_of_one_node_in_one_incarnation) {
  const auto plan = [](EventNumber, SourceId source) {
    return FragmentPlan{.absent = source == 10, .size = source == 10 ? 0U : 5U};
  };
  const auto a = write("bu0", {{{0, 100}, 1}});
  const auto b = write("bu1", {{{0, 100}, 1}}, 1, plan);
  write_manifest({{{0, 100}, 1, "bu1", 1}}, {.built = 100, .incomplete = 100, .balanced = true});
  auto result = check({a, b});
  EXPECT_THAT(result.problems, IsEmpty());
  EXPECT_EQ(result.incomplete, 100U);
  EXPECT_EQ(result.superseded, 100U);
  const auto c = write("bu0", {{{0, 100}, 0}}, 2, plan);
  write_manifest({{{0, 100}, 0, "bu0", 1}}, {.built = 100, .incomplete = 100, .balanced = true});
  result = check({a, c});
  EXPECT_EQ(result.incomplete, 100U);
  write_manifest({{{0, 100}, 1, "bu0", 2}}, {.built = 100, .balanced = true});
  EXPECT_THAT(check({a, b, c}).problems, ::testing::Contains(HasSubstr("is in none of the files")));
}

TEST_F(Verify, a_later_line_of_the_manifest_leaves_what_it_does_not_cover) {
  const auto plan = [](EventNumber, SourceId source) {
    return FragmentPlan{.absent = source == 10, .size = source == 10 ? 0U : 5U};
  };
  const auto a = write("bu0", {{{0, 100}, 0}});
  const auto b = write("bu1", {{{0, 100}, 1}}, 1, plan);
  write_manifest({{{0, 100}, 0, "bu0", 1}, {{40, 60}, 1, "bu1", 1}},
                 {.built = 100, .incomplete = 20, .balanced = true});
  const auto result = check({a, b});
  EXPECT_THAT(result.problems, IsEmpty());
  EXPECT_EQ(result.incomplete, 20U);
}

TEST_F(Verify, tells_duplicates_from_superseded_copies) {
  const auto a = write("bu0", {{{0, 100}}});
  const auto b = write("bu1", {{{90, 120}}});
  const auto result = check({a, b});
  EXPECT_FALSE(result.good());
  EXPECT_EQ(result.events, 120U);
  EXPECT_EQ(result.duplicates, 10U);
  EXPECT_EQ(result.superseded, 0U);
  EXPECT_THAT(result.problems, ElementsAre(HasSubstr("events 90 to 99 are in " + a)));
}

// Only a later part of the same writer explains a second copy of one attempt.
TEST_F(Verify, a_later_part_of_another_writer_explains_no_copy) {
  const auto a = write("bu0", {{{0, 100}}}, 1);
  const auto b = write("bu1", {{{90, 100}}}, 2);
  incarnation = 2;
  const auto c = write("bu0", {{{80, 90}}}, 2);
  EXPECT_EQ(check({a, b}).duplicates, 10U);
  EXPECT_EQ(check({a, c}).duplicates, 10U);
}

TEST_F(Verify, counts_an_event_once_that_its_writer_wrote_again_in_the_next_part) {
  const auto a = write("bu0", {{{0, 100}}}, 1);
  const auto b = write("bu0", {{{80, 120}}}, 2);
  const auto result = check({a, b});
  EXPECT_TRUE(result.good());
  EXPECT_EQ(result.events, 120U);
  EXPECT_EQ(result.superseded, 20U);
}

TEST_F(Verify, finds_an_event_twice_in_one_file) {
  const auto result = check({write("bu0", {{{0, 10}}, {{5, 6}}})});
  EXPECT_FALSE(result.good());
  EXPECT_EQ(result.events, 10U);
  EXPECT_EQ(result.duplicates, 1U);
}

TEST_F(Verify, a_file_with_two_names_is_one) {
  const auto file = write("bu0", {{{0, 100}}});
  const auto again =
      std::filesystem::path(file).parent_path() / "." / std::filesystem::path(file).filename();
  const auto link = directory.path() + "/link.h5";
  std::filesystem::create_hard_link(file, link);
  const auto result = check({file, again.string(), link});
  EXPECT_TRUE(result.good());
  EXPECT_EQ(result.files, 1U);
  EXPECT_EQ(result.duplicates, 0U);
}

TEST_F(Verify, the_manifest_of_another_run_is_no_witness) {
  const auto file = write("bu0", {{{0, 100}}});
  auto other = ManifestWriter::create(directory.path(), {.run = 8, .protocol = "pull"});
  ASSERT_TRUE(other);
  std::filesystem::rename(other->path(), directory.path() + "/" + manifest_name(7));
  EXPECT_THAT(check({file}).problems,
              ElementsAre(HasSubstr("it is the manifest of run 8, beside files of run 7")));
}

TEST_F(Verify, a_file_of_another_run_under_a_name_of_the_manifest_is_a_problem) {
  const auto file = write("bu0", {{{0, 100}}}); // of run 7
  auto other = ManifestWriter::create(directory.path(), {.run = 8, .protocol = "pull"});
  ASSERT_TRUE(other && other->add(ManifestFile{"bu0", 1, run_file_name(8, "bu0", 1, 1)}));
  ASSERT_TRUE(other->finish({.built = 100, .balanced = true}));
  const auto renamed = directory.path() + "/" + run_file_name(8, "bu0", 1, 1);
  std::filesystem::rename(file, renamed);
  EXPECT_THAT(check({renamed}, {.manifests = {other->path()}}).problems,
              ElementsAre(HasSubstr("it is a file of run 7, and not of run 8")));
}

TEST_F(Verify, compares_the_summary_with_the_events_and_says_what_it_says) {
  const auto plan = [](EventNumber event, SourceId source) {
    const bool absent = event == 5 && source == 10;
    return FragmentPlan{.absent = absent, .size = absent ? 0U : 5U};
  };
  const auto a = write("bu0", {{{0, 100}}}, 1, plan);
  write_manifest({}, {.built = 100, .incomplete = 1, .balanced = true});
  auto result = check({a});
  EXPECT_THAT(result.problems, IsEmpty());
  EXPECT_THAT(result.notes, IsEmpty());
  write_manifest({}, {.built = 100, .incomplete = 0, .balanced = false});
  result = check({a});
  EXPECT_THAT(result.problems, ElementsAre(HasSubstr("counts 0 incomplete events, and the files "
                                                     "hold 1")));
  EXPECT_THAT(result.notes, ElementsAre("the run's ledger was not balanced"));
  write_manifest({}, {.built = 99, .incomplete = 1, .balanced = true});
  EXPECT_THAT(check({a}).problems, ElementsAre(HasSubstr("counts 99 events built")));
}

// Of several manifests that are given, that of the run counts.
TEST_F(Verify, takes_the_manifest_that_is_given_for_its_run) {
  const auto a = write("bu0", {{{0, 100}}});
  const TemporaryDirectory elsewhere;
  std::vector<std::string> manifests;
  for (const RunNumber run : {RunNumber{8}, RunNumber{7}}) {
    auto manifest =
        ManifestWriter::create(elsewhere.path(), {.run = run, .run_id = 70, .protocol = "pull"});
    ASSERT_TRUE(manifest && manifest->finish({.built = run == 7 ? 99U : 100U, .balanced = true}));
    manifests.push_back(manifest->path());
  }
  EXPECT_THAT(check({a}, {.manifests = manifests}).problems,
              ElementsAre(HasSubstr("counts 99 events built")));
  EXPECT_TRUE(check({a}).good());
}

TEST_F(Verify, takes_a_manifest_that_is_given_under_any_name) {
  const auto a = write("bu0", {{{0, 100}}});
  write_manifest({}, {.built = 99, .balanced = true});
  const auto other = directory.path() + "/" + manifest_name(8);
  std::filesystem::rename(directory.path() + "/" + manifest_name(7), other);
  EXPECT_THAT(check({a}, {.manifests = {other}}).problems,
              ElementsAre(HasSubstr("counts 99 events built")));
}

TEST_F(Verify, tells_a_run_from_another_one_with_its_number) {
  const auto a = write("bu0", {{{0, 100}}});
  run_id = 71;
  const auto b = write("bu1", {{{100, 200}}});
  const auto is_of_another = [](const std::string& than) {
    return ElementsAre(
        HasSubstr("bu1_i1_0001.h5: it belongs to another run, or slice, than " + than));
  };
  EXPECT_THAT(check({a, b}).problems, is_of_another(a));
  write_manifest({}, {.built = 200, .balanced = true});
  const auto manifest = directory.path() + "/" + manifest_name(7);
  EXPECT_THAT(check({a, b}).problems, is_of_another(manifest));
  const TemporaryDirectory elsewhere;
  auto other =
      ManifestWriter::create(elsewhere.path(), {.run = 7, .run_id = 72, .protocol = "pull"});
  ASSERT_TRUE(other);
  EXPECT_THAT(check({a}, {.manifests = {manifest, other->path()}}).problems,
              ::testing::Contains(HasSubstr(other->path() + ": it belongs to another run")));
}

TEST_F(Verify, says_which_file_the_manifest_does_not_name) {
  const auto a = write("bu0", {{{0, 100}}});
  write_manifest({}, {.built = 200, .balanced = true});
  const auto b = write("bu1", {{{100, 200}}});
  EXPECT_THAT(check({a, b}).notes,
              ElementsAre(::testing::AllOf(HasSubstr(b + ": "), HasSubstr("does not name it"))));
  EXPECT_EQ(check({a}, {.unnamed = {b}}).events, 200U);
  const auto of_another = directory.path() + "/" + run_file_name(8, "bu1", 1, 1);
  std::filesystem::rename(b, of_another);
  EXPECT_THAT(
      check({a}, {.unnamed = {of_another}}).problems,
      ::testing::Contains(HasSubstr("it is a file of run 7, but its name is that of another run")));
}

TEST_F(Verify, inspect_takes_no_event_from_another_run_with_the_same_number) {
  const auto a = write("bu0", {{{0, 100}}});
  write_manifest({}, {.built = 100, .balanced = true});
  run_id = 71;
  write("bu1", {{{0, 200}, 5}}); // a later attempt
  const auto manifest = directory.path() + "/" + manifest_name(7);
  const auto own = inspect_event(manifest, 50, {});
  ASSERT_TRUE(own) << own.error().text;
  EXPECT_THAT(*own, Not(HasSubstr("bu1")));
  EXPECT_FALSE(inspect_event(manifest, 150, {}));
}

// As one to which nothing was committed when its run ended.
TEST_F(Verify, a_file_that_no_manifest_names_may_be_gone) {
  const auto a = write("bu0", {{{0, 100}}});
  const auto gone = directory.path() + "/" + run_file_name(7, "bu1", 1, 1);
  EXPECT_THAT(check({a}, {.unnamed = {gone}}).problems, IsEmpty());
  EXPECT_THAT(check({a, gone}).problems, ElementsAre(HasSubstr(gone)));
}

TEST_F(Verify, a_run_may_end_while_its_files_are_read) {
  const auto a = write("bu0", {{{0, 100}}});
  auto manifest =
      ManifestWriter::create(directory.path(), {.run = 7, .run_id = 70, .protocol = "pull"});
  ASSERT_TRUE(manifest && manifest->add(ManifestFile{"bu0", 1, run_file_name(7, "bu0", 1, 1)}));
  bool ended = false;
  const auto end_run = [&](std::uint64_t, std::uint64_t) {
    if (!std::exchange(ended, true)) {
      ASSERT_TRUE(manifest->finish({.built = 200, .balanced = true}));
    }
  };
  const auto result = check({a}, {.progress = end_run});
  ASSERT_TRUE(ended);
  EXPECT_THAT(result.problems, IsEmpty());
  EXPECT_THAT(result.notes, ElementsAre(HasSubstr("the run did not end in good order")));
  EXPECT_THAT(check({a}).problems, ElementsAre(HasSubstr("counts 200 events built")));
}

TEST_F(Verify, a_damaged_line_of_the_manifest_is_a_problem) {
  const auto file = write("bu0", {{{0, 100}}});
  write_manifest({{{0, 10}, 0, "bu0", 1}}, {.built = 100, .balanced = true});
  const auto path = directory.path() + "/" + manifest_name(7);
  auto bytes = content(path);
  bytes[bytes.find("\"attempt\"")] = '?';
  put(path, bytes);
  EXPECT_THAT(check({file}).problems,
              ElementsAre(HasSubstr(path + ":3: the line is damaged (not JSON)")));
}

TEST_F(Verify, a_pipe_is_no_file_and_is_not_waited_for) {
  const auto file = write("bu0", {{{0, 100}}});
  const auto pipe = directory.path() + "/run000007_pipe_i1_0001.h5";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_THAT(check({pipe}).problems, ElementsAre(HasSubstr("is not a regular file")));
  const auto manifest = directory.path() + "/" + manifest_name(7);
  ASSERT_EQ(mkfifo(manifest.c_str(), 0600), 0);
  EXPECT_THAT(check({file}).problems, ElementsAre(HasSubstr("is not a regular file")));
}

TEST_F(Verify, goes_on_with_the_others_when_a_file_cannot_be_read) {
  const auto good = write("bu0", {{{0, 100}}});
  const auto empty = directory.path() + "/empty.h5";
  const auto text = directory.path() + "/text.h5";
  const auto none = directory.path() + "/none.h5";
  put(empty, "");
  put(text, "these are not the bytes you are looking for");
  const auto result = check({empty, good, none, text, directory.path()});
  EXPECT_FALSE(result.good());
  EXPECT_EQ(result.events, 100U);
  EXPECT_EQ(result.files, 1U);
  EXPECT_THAT(result.problems, ::testing::UnorderedElementsAre(empty + ": the file is empty",
                                                               text + ": not an HDF5 file",
                                                               HasSubstr(none + ": No such file"),
                                                               HasSubstr("is a directory")));
  EXPECT_FALSE(verify({}, {}));
}

TEST_F(Verify, finds_a_file_truncated_anywhere) {
  const auto path = write("bu0", {{{0, 300}}});
  const auto whole = content(path);
  const auto cut = directory.path() + "/cut.h5";
  Random random(4711);
  for (int round = 0; round < 60; ++round) {
    const auto size = random.below(whole.size());
    put(cut, whole.substr(0, size));
    const auto result = check({cut});
    EXPECT_FALSE(result.good()) << "cut to " << size << " of " << whole.size();
    for (const auto& problem : result.problems) EXPECT_THAT(problem, HasSubstr(cut));
    static_cast<void>(inspect_file(cut));
  }
}

// A row of a good file is changed in one field: what is wrong is said, once.
class VerifyRow : public Verify {
protected:
  VerifyRow() {
    path_ = write("bu0", {{{0, 10}}}, 1, [](EventNumber event, SourceId source) {
      const bool absent = event == 3 && source == 20;
      return FragmentPlan{.absent = absent, .size = absent ? 0U : 9U};
    });
    whole_ = content(path_);
  }
  // The problems of a copy in which the row is another one; none: it is good.
  template <class Row, class Change>
  std::string problem_of(Row row, Change change) {
    const auto bytes_of = [](const Row& from) {
      return std::string(reinterpret_cast<const char*>(&from), sizeof from);
    };
    const auto at = whole_.find(bytes_of(row));
    EXPECT_NE(at, std::string::npos);
    change(row);
    auto bytes = whole_;
    bytes.replace(at, sizeof row, bytes_of(row));
    const auto odd = directory.path() + "/odd.h5";
    put(odd, bytes);
    const auto result = check({odd});
    EXPECT_EQ(result.good(), result.problems.empty());
    return fmt::format("{}", fmt::join(result.problems, "\n"));
  }
  template <class Change>
  std::string event(std::uint64_t number, Change change) {
    EventRow row;
    EXPECT_TRUE(reader().read_events(number, {&row, 1}));
    return problem_of(row, change);
  }
  template <class Change>
  std::string missing(std::uint64_t number, Change change) {
    MissingRow row;
    EXPECT_TRUE(reader().read_missing(number, {&row, 1}));
    return problem_of(row, change);
  }
  template <class Change>
  std::string fragment(std::uint64_t number, Change change) {
    FragmentRow row;
    EXPECT_TRUE(reader().read_fragments(number, {&row, 1}));
    return problem_of(row, change);
  }
  RunFileReader& reader() {
    if (!reader_) reader_ = std::move(*RunFileReader::open(path_));
    return *reader_;
  }

  // Instead of a table of the file one of so many rows, none of which is there.
  static void claim_rows(const std::string& path, const char* table, std::uint64_t rows) {
    const detail::Hdf5Guard guard;
    const detail::Handle access{H5Pcreate(H5P_FILE_ACCESS), H5Pclose};
    H5Pset_libver_bounds(access.get(), H5F_LIBVER_LATEST, H5F_LIBVER_LATEST);
    const detail::Handle file{H5Fopen(path.c_str(), H5F_ACC_RDWR, access.get()), H5Fclose};
    const detail::Handle old{H5Dopen2(file.get(), table, H5P_DEFAULT), H5Dclose};
    const detail::Handle type{H5Dget_type(old.get()), H5Tclose};
    H5Ldelete(file.get(), table, H5P_DEFAULT);
    const hsize_t dimension = rows;
    const hsize_t unlimited = H5S_UNLIMITED;
    const hsize_t chunk = 4096;
    const detail::Handle space{H5Screate_simple(1, &dimension, &unlimited), H5Sclose};
    const detail::Handle layout{H5Pcreate(H5P_DATASET_CREATE), H5Pclose};
    H5Pset_chunk(layout.get(), 1, &chunk);
    const detail::Handle made{H5Dcreate2(file.get(), table, type.get(), space.get(), H5P_DEFAULT,
                                         layout.get(), H5P_DEFAULT),
                              H5Dclose};
    EXPECT_TRUE(made);
  }
  [[nodiscard]] const std::string& whole() const { return whole_; }

private:
  std::string path_;
  std::string whole_;
  std::unique_ptr<RunFileReader> reader_;
};

TEST_F(VerifyRow, of_an_event_that_lies_is_named) {
  EXPECT_EQ(event(5, [](EventRow&) {}), "");
  EXPECT_THAT(event(5, [](EventRow& row) { ++row.first_fragment; }), HasSubstr("not its own"));
  EXPECT_THAT(event(5, [](EventRow& row) { ++row.first_missing; }), HasSubstr("not its own"));
  EXPECT_THAT(event(9, [](EventRow& row) { ++row.fragment_count; }), HasSubstr("beyond the end"));
  EXPECT_THAT(event(9, [](EventRow& row) { ++row.missing_count; }), HasSubstr("beyond the end"));
  EXPECT_THAT(event(9, [](EventRow& row) { row.fragment_count = ~0U; }),
              HasSubstr("beyond the end"));
  EXPECT_THAT(event(9, [](EventRow& row) { --row.fragment_count; }),
              HasSubstr("bytes, but its row says"));
  EXPECT_THAT(event(5, [](EventRow& row) { ++row.size; }), HasSubstr("bytes, but its row says"));
  EXPECT_THAT(event(5, [](EventRow& row) { row.flags ^= event_incomplete; }),
              HasSubstr("is marked as incomplete, and has 3 of 3"));
  EXPECT_THAT(event(3, [](EventRow& row) { row.flags ^= event_incomplete; }),
              HasSubstr("is marked as complete, and has 2 of 3"));
  EXPECT_THAT(event(9, [](EventRow& row) { row.event = ~0ULL; }),
              HasSubstr("an impossible number"));
}

// What rows repeat of each other and of the header. The other flags are found too.
TEST_F(VerifyRow, that_disagrees_with_another_one_is_named) {
  EXPECT_THAT(event(5, [](EventRow& row) { row.attempt = 3; }),
              HasSubstr("event 5 is of attempt 3, but its fragment of source 0xa (source-10) is of "
                        "attempt 0"));
  EXPECT_THAT(event(5, [](EventRow& row) { ++row.incarnation; }),
              HasSubstr("its row is of node 0, incarnation 2, but the file is of node 0, "
                        "incarnation 1"));
  EXPECT_THAT(event(5, [](EventRow& row) { row.node = 4; }), HasSubstr("its row is of node 4"));
  EXPECT_THAT(event(5, [](EventRow& row) { row.streams = 1; }), HasSubstr("must be 0"));
  for (int bit = 1; bit < 32; ++bit) {
    EXPECT_THAT(event(5, [&](EventRow& row) { row.flags |= 1U << bit; }),
                HasSubstr("but those of its fragments together 0x0"));
  }
  EXPECT_THAT(fragment(5, [](FragmentRow& row) { row.attempt = 2; }),
              HasSubstr("is of attempt 0, but its fragment of source 0x1e (source-30) is of "
                        "attempt 2"));
  EXPECT_THAT(fragment(5, [](FragmentRow& row) { row.flags = event_bad_number; }),
              HasSubstr("its flags are 0x0, but those of its fragments together 0x4"));
  for (const unsigned unknown : {1U, 16U, 32768U}) {
    EXPECT_THAT(
        fragment(5, [&](FragmentRow& row) { row.flags = static_cast<FragmentRowFlags>(unknown); }),
        HasSubstr("are not known"));
  }
  EXPECT_EQ(missing(0, [](MissingRow&) {}), "");
  for (const std::uint32_t other : {9U, 11U, 31U}) {
    const auto unknown = HasSubstr(fmt::format("source {:#x} is not in /sources", other));
    EXPECT_THAT(missing(0, [&](MissingRow& row) { row.source = other; }), unknown);
    EXPECT_THAT(fragment(5, [&](FragmentRow& row) { row.source = other; }), unknown);
  }
  for (const std::uint32_t unknown : {0U, std::uint32_t{wire::missing_reasons}, ~0U}) {
    EXPECT_THAT(missing(0, [&](MissingRow& row) { row.reason = unknown; }),
                HasSubstr(fmt::format("its reason {} is not known", unknown)));
  }
  EXPECT_THAT(missing(0, [](MissingRow& row) { row.event = 4; }),
              HasSubstr("event 3: a row of event 4 is in its rows of /missing"));
}

TEST_F(VerifyRow, of_a_fragment_that_lies_is_named) {
  EXPECT_EQ(fragment(5, [](FragmentRow&) {}), "");
  EXPECT_THAT(fragment(5, [](FragmentRow& row) { ++row.event; }), HasSubstr("is in its rows"));
  EXPECT_THAT(fragment(4, [](FragmentRow& row) { row.source = 10; }),
              HasSubstr("occurs twice, or out of order"));
  EXPECT_THAT(fragment(4, [](FragmentRow& row) { row.source = 9; }),
              HasSubstr("occurs twice, or out of order"));
  EXPECT_THAT(fragment(5, [](FragmentRow& row) { row.source = 31; }),
              HasSubstr("is marked as complete, and has 2 of 3"));
  EXPECT_THAT(fragment(5, [](FragmentRow& row) { row.source = 99; }), HasSubstr("has 2 of 3"));
  for (const std::uint32_t other : {25U, 31U}) { // by its number alone
    EXPECT_THAT(fragment(5,
                         [&](FragmentRow& row) {
                           row.source = other;
                           ++row.crc32c;
                         }),
                HasSubstr(fmt::format("event 1, source {:#x}: checksum", other)));
  }
  const auto marked = HasSubstr("seen and marked when it was built");
  EXPECT_THAT(fragment(5, [](FragmentRow& row) { ++row.crc32c; }), Not(marked));
  EXPECT_THAT(fragment(5,
                       [](FragmentRow& row) {
                         ++row.crc32c;
                         row.flags = event_bad_checksum;
                       }),
              marked);
  EXPECT_THAT(fragment(5, [](FragmentRow& row) { ++row.size; }),
              HasSubstr("bytes, but its row says"));
  EXPECT_THAT(fragment(5, [](FragmentRow& row) { ++row.crc32c; }), HasSubstr("checksum of its 9"));
  for (const std::uint64_t offset :
       {reader().bytes() - 8, reader().bytes() + 1, ~std::uint64_t{0}}) {
    EXPECT_THAT(fragment(5, [&](FragmentRow& row) { row.offset = offset; }),
                HasSubstr("beyond the end of /bytes"));
  }
  // The last nine bytes are another fragment's, and there.
  EXPECT_THAT(fragment(5, [&](FragmentRow& row) { row.offset = reader().bytes() - 9; }),
              HasSubstr("checksum of its 9"));
}

// Whoever shows one event goes by such a row too.
TEST_F(VerifyRow, that_points_beyond_the_file_is_an_error_of_the_reader) {
  EventRow last;
  ASSERT_TRUE(reader().read_events(9, {&last, 1}));
  ASSERT_EQ(reader().fragments_of(last)->size(), 3U);
  ASSERT_TRUE(reader().missing_of(last));
  const auto refused = [&](const std::function<void(EventRow&)>& change) {
    EventRow row = last;
    change(row);
    const auto fragments = reader().fragments_of(row);
    const auto missing = reader().missing_of(row);
    return !fragments || !missing;
  };
  EXPECT_TRUE(refused([](EventRow& row) { ++row.fragment_count; }));
  EXPECT_TRUE(refused([](EventRow& row) { row.fragment_count = ~0U; }));
  EXPECT_TRUE(refused([](EventRow& row) { ++row.first_fragment; }));
  EXPECT_TRUE(refused([](EventRow& row) { row.first_fragment = ~0ULL; }));
  EXPECT_TRUE(refused([](EventRow& row) { ++row.event; }));
  EXPECT_TRUE(refused([](EventRow& row) { row.missing_count = 2; }));
  EXPECT_TRUE(refused([](EventRow& row) { row.first_missing = ~0ULL; }));
  const FragmentRow fragment = reader().fragments_of(last)->back();
  EXPECT_TRUE(reader().bytes_of(fragment));
  for (const std::uint64_t offset : {reader().bytes() - 8, ~std::uint64_t{0}}) {
    FragmentRow row = fragment;
    row.offset = offset;
    EXPECT_FALSE(reader().bytes_of(row));
  }
}

// Tables of any number of rows, none of which is there.
TEST_F(VerifyRow, that_many_may_be_claimed_by_a_table_costs_no_memory) {
  EventRow event;
  FragmentRow fragment;
  ASSERT_TRUE(reader().read_events(9, {&event, 1}) && reader().read_fragments(5, {&fragment, 1}));
  const auto odd = directory.path() + "/odd.h5";
  const auto claim = [&](const char* table, std::uint64_t rows) {
    EXPECT_NE(
        problem_of(event, [](EventRow& row) { row.fragment_count = row.missing_count = ~0U; }), "");
    claim_rows(odd, table, rows);
  };
  constexpr std::uint64_t many = 1ULL << 48;
  for (const char* const table : {"/fragments", "/missing", "/gaps", "/bytes"}) {
    SCOPED_TRACE(table);
    claim(table, many);
    std::filesystem::resize_file(odd, 1ULL << 42); // sparse: it costs nothing
    EXPECT_FALSE(check({odd}).good());
    const auto file = RunFileReader::open(odd);
    ASSERT_TRUE(file) << file.error().text;
    EventRow lie = event;
    lie.fragment_count = lie.missing_count = ~0U;
    EXPECT_FALSE((*file)->fragments_of(lie));
    EXPECT_FALSE((*file)->missing_of(lie));
    fragment.offset = many / 2;
    EXPECT_FALSE((*file)->bytes_of(fragment));
  }
}

TEST_F(VerifyRow, of_sources_may_not_be_as_many_as_a_table_claims) {
  const auto odd = directory.path() + "/odd.h5";
  put(odd, whole());
  claim_rows(odd, "/sources", 1ULL << 48);
  EXPECT_THAT(check({odd}).problems, ElementsAre(HasSubstr("rows are too many")));
}

TEST_F(VerifyRow, of_an_event_with_more_fragments_than_sources_is_an_error) {
  EventRow event;
  ASSERT_TRUE(reader().read_events(0, {&event, 1}));
  EXPECT_NE(problem_of(event, [](EventRow& row) { row.fragment_count = 70'000; }), "");
  const auto odd = directory.path() + "/odd.h5";
  claim_rows(odd, "/fragments", 100'000);
  EXPECT_THAT(check({odd}).problems, ElementsAre(HasSubstr("more fragments than sources")));
}

TEST_F(VerifyRow, of_a_fragment_that_was_flagged_when_it_was_built_is_counted) {
  auto bytes = whole();
  const auto replace = [&bytes](auto row, auto change) {
    const auto bytes_of = [&row] {
      return std::string(reinterpret_cast<const char*>(&row), sizeof row);
    };
    const auto at = bytes.find(bytes_of());
    ASSERT_NE(at, std::string::npos);
    change(row);
    bytes.replace(at, sizeof row, bytes_of());
  };
  EventRow event;
  FragmentRow fragment;
  ASSERT_TRUE(reader().read_events(1, {&event, 1}) && reader().read_fragments(5, {&fragment, 1}));
  replace(event, [](EventRow& row) { row.flags = event_bad_number; });
  replace(fragment, [](FragmentRow& row) { row.flags = event_bad_number; });
  const auto odd = directory.path() + "/odd.h5";
  put(odd, bytes);
  const auto result = check({odd});
  EXPECT_THAT(result.problems, IsEmpty());
  EXPECT_EQ(result.flagged, 1U);
}

// As after a crash of the machine: the table says so many rows, and their bytes are not there.
TEST_F(VerifyRow, that_cannot_be_read_is_an_error_that_names_its_table) {
  const auto odd = directory.path() + "/odd.h5";
  const std::vector<std::pair<const char*, std::uint64_t>> tables{
      {"/events", reader().events()},
      {"/fragments", reader().fragments()},
      {"/missing", reader().missing()},
      {"/gaps", 1},
      {"/bytes", reader().bytes()}};
  for (const auto& [table, rows] : tables) {
    put(odd, whole());
    claim_rows(odd, table, rows);
    EXPECT_THAT(check({odd}).problems,
                ::testing::Contains(HasSubstr(
                    fmt::format("{}:{}: the chunk that begins at row 0 is missing", odd, table))));
  }
}

TEST_F(VerifyRow, of_a_gap_without_a_number_counts_nothing) {
  const auto path = write("bu1", {{{0, 100}, 0, {{40, 60}}}}, 1, [](EventNumber event, SourceId) {
    const bool absent = event >= 40 && event < 60;
    return FragmentPlan{.absent = absent, .size = absent ? 0U : 5U};
  });
  EXPECT_EQ(check({path}).gaps, 20U);
  const auto bytes_of = [](const GapRow& gap) {
    return std::string(reinterpret_cast<const char*>(&gap), sizeof gap);
  };
  auto bytes = content(path);
  const auto at = bytes.find(bytes_of({.first = 40, .end = 60}));
  ASSERT_NE(at, std::string::npos);
  for (const GapRow& odd : {GapRow{.first = 60, .end = 40}, GapRow{.first = 40, .end = 40}}) {
    bytes.replace(at, sizeof odd, bytes_of(odd));
    put(path, bytes);
    const auto result = check({path});
    EXPECT_EQ(result.gaps, 0U);
    EXPECT_EQ(result.events, 80U);
  }
}

// Nothing is asserted of the result: a byte that nobody uses may change. But nothing crashes or
// hangs, which the sanitizers watch.
TEST_F(Verify, survives_bytes_changed_anywhere) {
  const auto path = write("bu0", {{{0, 200}}});
  const auto whole = content(path);
  const auto odd = directory.path() + "/odd.h5";
  const char* const given = std::getenv("FANIN_SEED");
  Random random(given != nullptr ? std::strtoull(given, nullptr, 10) : 42);
  for (int round = 0; round < 150; ++round) {
    auto bytes = whole;
    const auto range = round % 2 == 0 ? std::min<std::size_t>(16384, bytes.size()) : bytes.size();
    for (auto changes = 1 + random.below(4); changes > 0; --changes) {
      bytes[random.below(range)] = static_cast<char>(random.next());
    }
    put(odd, bytes);
    static_cast<void>(check({odd}));
    static_cast<void>(inspect_file(odd));
    static_cast<void>(inspect_event(odd, 17));
  }
}

TEST_F(Verify, reads_a_file_that_was_copied_with_compression) {
  const auto python = testing::python_with_h5py();
  if (python.empty()) GTEST_SKIP() << "python3-h5py is not installed";
  const auto path = write("bu0", {{{0, 300}}});
  const auto packed = directory.path() + "/packed.h5";
  const auto script = fmt::format("import h5py\n"
                                  "a = h5py.File('{}', 'r')\n"
                                  "b = h5py.File('{}', 'w')\n"
                                  "for k, v in a.attrs.items(): b.attrs[k] = v\n"
                                  "for k in a: b.create_dataset(k, data=a[k][:], maxshape=(None,), "
                                  "chunks=(1000,), compression='gzip')\n",
                                  path, packed);
  put(directory.path() + "/pack.py", script);
  ASSERT_EQ(std::system(fmt::format("{} {}/pack.py", python, directory.path()).c_str()), 0);
  const auto result = check({packed});
  EXPECT_THAT(result.problems, IsEmpty());
  EXPECT_EQ(result.complete, 300U);
}

TEST_F(Verify, inspect_shows_a_file_and_an_event) {
  const auto plan = [](EventNumber event, SourceId source) {
    return FragmentPlan{.absent = event == 3 && source == 20,
                        .size = event == 3 && source == 20 ? 0U : 100U};
  };
  const auto path = write("bu0", {{{0, 10}}}, 1, plan);
  const auto file = inspect_file(path);
  ASSERT_TRUE(file) << file.error().text;
  for (const auto* expected : {"run 7", "bu0", "10 events from 0 to 9", "9 complete, 1 incomplete",
                               "source-30", "ru1", "29 fragments", "closed"}) {
    EXPECT_THAT(*file, HasSubstr(expected));
  }
  EXPECT_THAT(*file, Not(HasSubstr("of the run"))); // how long it took is not in the file
  const auto event = inspect_event(path, 3, 32);
  ASSERT_TRUE(event) << event.error().text;
  for (const auto* expected : {"event 3 of run 7: 2 fragments, 200 B, incomplete", "source 0xa",
                               "good", "and 68 bytes more", "missing  absent"}) {
    EXPECT_THAT(*event, HasSubstr(expected));
  }
  const auto none = inspect_event(path, 10);
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().kind, ErrorKind::not_found);
  EXPECT_THAT(none.error().text, HasSubstr("no event 10"));
}

TEST_F(Verify, inspect_takes_the_duration_from_the_manifest_and_not_from_the_files_time) {
  const auto path = write("bu0", {{{0, 100}}});
  write_manifest({}, {.built = 100, .balanced = true, .ended_unix_ns = 1'700'000'004'000'000'000});
  const auto file = inspect_file(path);
  ASSERT_TRUE(file) << file.error().text;
  EXPECT_THAT(*file,
              HasSubstr("event rate 25 Hz: the events of this file over the 4.0 s of the run"));
  write_manifest({}, {.built = 100, .ended_unix_ns = std::numeric_limits<std::int64_t>::min()});
  EXPECT_THAT(*inspect_file(path), Not(HasSubstr("of the run")));
}

} // namespace
} // namespace fanin::storage
