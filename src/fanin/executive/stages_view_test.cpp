#include "fanin/executive/stages_view.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace fanin::executive {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;

constexpr std::size_t group = 0;
constexpr std::size_t slice0 = 1;
constexpr std::size_t slice1 = 2;

config::Configuration configuration_of(const std::string& file, bool forwards) {
  config::Configuration one;
  one.file = file;
  if (forwards) one.forward.urls = {{.scheme = "tcp", .host = "", .port = 1, .options = {}}};
  return one;
}

class StagesViewTest : public ::testing::Test {
protected:
  void progress(std::size_t index, double time, int events, bool ready = true) {
    view_.on_report(index, json::Object{{"report", "progress"},
                                        {"time_s", time},
                                        {"events", events},
                                        {"incomplete", 1},
                                        {"bytes_built", events * 1000},
                                        {"line", "waiting for bu0"},
                                        {"ready", ready}});
  }
  void result(std::size_t index, int built, bool ok = true, int undelivered = 0, int lost = 1) {
    json::Value report = json::Object{
        {"report", "result"},
        {"run", 5},
        {"duration_s", 2.5},
        {"events", json::Object{{"built", built}, {"undelivered", undelivered}, {"lost", lost}}},
        {"fragments", json::Object{}},
        {"balanced", ok},
        {"ok", ok},
        {"error", ok ? "" : "no order"}};
    report["files"].append("file" + std::to_string(index));
    view_.on_report(index, report);
  }

  std::vector<config::Configuration> configurations_{configuration_of("a/group.toml", true),
                                                     configuration_of("a/slice.toml", false),
                                                     configuration_of("b/slice.toml", false)};
  StagesView view_{configurations_};
};

TEST_F(StagesViewTest, files_of_one_name_are_named_with_their_folders) {
  EXPECT_EQ(view_.name(group), "group");
  EXPECT_EQ(view_.name(slice0), "a/slice.toml");
  EXPECT_EQ(view_.name(slice1), "b/slice.toml");
}

TEST_F(StagesViewTest, what_only_run_control_shows_changes_nothing) {
  progress(group, 1, 100);
  const std::string line = view_.progress_line();
  const std::string result = view_.result().dump();
  for (const char* kind : {"summary", "usage"}) {
    view_.on_report(group, json::Object{{"report", kind}, {"time_s", 9.5}, {"bytes_built", 7}});
  }
  EXPECT_EQ(view_.progress_line(), line);
  EXPECT_EQ(view_.result().dump(), result);
  EXPECT_TRUE(view_.begins_round());
}

TEST_F(StagesViewTest, the_line_says_what_is_waited_for_and_then_what_is_built) {
  progress(slice0, 0, 0);
  progress(slice1, 0, 0, false);
  EXPECT_EQ(view_.progress_line(), "b/slice.toml: waiting for bu0");
  progress(slice1, 0, 0);
  EXPECT_EQ(view_.progress_line(), "the groups start");
  progress(slice0, 1, 100);
  progress(slice1, 1, 200);
  progress(group, 1, 310);
  EXPECT_EQ(view_.progress_line(),
            "   1.0 s     300 Hz   300 kB/s  300 events  2 incomplete in 2 slices; 310 in each of "
            "1 group");
}

TEST_F(StagesViewTest, a_round_begins_when_a_configuration_reports_its_progress_again) {
  progress(slice0, 0, 0);
  EXPECT_TRUE(view_.begins_round());
  progress(slice1, 0, 0);
  EXPECT_FALSE(view_.begins_round());
  progress(slice1, 1, 0); // the other slice may be frozen
  EXPECT_TRUE(view_.begins_round());
  progress(slice0, 1, 0);
  EXPECT_FALSE(view_.begins_round());
  progress(group, 1, 0);
  EXPECT_FALSE(view_.begins_round());
  progress(slice0, 2, 0);
  EXPECT_TRUE(view_.begins_round());
}

TEST_F(StagesViewTest, the_line_says_what_a_group_or_a_slice_that_stands_waits_for) {
  const auto standing = [&](std::size_t index, int events, const char* waits_for) {
    view_.on_report(index, json::Object{{"report", "progress"},
                                        {"events", events},
                                        {"open", 5},
                                        {"waiting_for", waits_for},
                                        {"ready", true}});
  };
  progress(slice0, 1, 100);
  progress(slice1, 1, 200);
  standing(group, 300, "slice 1");
  standing(group, 301, "slice 1");
  EXPECT_FALSE(view_.progress_line().contains("waiting"));
  standing(group, 301, "slice 1");
  EXPECT_THAT(view_.progress_line(), EndsWith("  group waiting for slice 1"));
  standing(slice1, 200, "builder unit 'bu0' to start");
  EXPECT_THAT(view_.progress_line(),
              EndsWith("  group waiting for slice 1  b/slice.toml waiting for builder unit 'bu0' "
                       "to start"));
  result(slice1, 200);
  result(group, 301);
  EXPECT_FALSE(view_.progress_line().contains("waiting")) << "they have ended";
}

TEST(StagesOfTwoGroups, of_groups_that_stand_the_line_names_the_one_that_lacks_a_node) {
  std::vector<config::Configuration> configurations{configuration_of("whole.toml", true),
                                                    configuration_of("lacking.toml", true)};
  for (auto& one : configurations) one.system.builder_units = {"bu0", "bu1"};
  StagesView view{configurations};
  for (int i = 0; i < 4; ++i) {
    const bool whole = i % 2 == 0;
    view.on_report(whole ? 0 : 1,
                   json::Object{{"report", "progress"},
                                {"events", 300},
                                {"open", 5},
                                {"builders", whole ? 2 : 1},
                                {"waiting_for", whole ? "slice 1" : "builder unit 'bu1'"}});
  }
  EXPECT_THAT(view.progress_line(), EndsWith("2 groups  lacking waiting for builder unit 'bu1'"));
}

TEST_F(StagesViewTest, the_line_names_a_slice_that_has_not_begun) {
  progress(slice0, 1, 100);
  progress(slice1, 1, 0);
  progress(group, 1, 100);
  view_.on_report(slice1, json::Object{{"report", "progress"},
                                       {"state", "waiting"},
                                       {"line", "waiting for source 0x1"},
                                       {"ready", true}});
  EXPECT_THAT(view_.progress_line(), EndsWith("  b/slice.toml waiting for source 0x1"));
}

TEST_F(StagesViewTest, the_result_has_all_configurations_and_the_sum_of_the_slices) {
  result(group, 32);
  result(slice0, 10);
  result(slice1, 20);
  const json::Value all = view_.result();
  EXPECT_EQ(all.at("run").natural(), 5U);
  EXPECT_TRUE(all.at("ok").boolean());
  EXPECT_TRUE(all.at("balanced").boolean());
  EXPECT_EQ(all.at("events").at("built").natural(), 30U);
  EXPECT_EQ(all.at("events").at("lost").natural(), 3U);
  EXPECT_EQ(all.at("files").list().size(), 3U);
  const json::Value& one = all.at("configurations").at("group");
  EXPECT_EQ(one.at("stage").natural(), 1U);
  EXPECT_EQ(one.at("file").text(), "a/group.toml");
  EXPECT_EQ(one.at("events").at("built").natural(), 32U);
  EXPECT_EQ(one.find("report"), nullptr);
  EXPECT_EQ(all.at("configurations").at("b/slice.toml").at("stage").natural(), 2U);
  EXPECT_THAT(stages_text(all),
              HasSubstr("1 group, 2 slices: ended in good order, every fragment"));
}

TEST_F(StagesViewTest, what_a_group_could_not_send_to_its_slice_is_not_forgotten) {
  result(group, 30, true, 7);
  result(slice0, 10);
  result(slice1, 13);
  const json::Value all = view_.result();
  EXPECT_EQ(all.at("events").at("undelivered").natural(), 7U);
  EXPECT_THAT(stages_text(all), HasSubstr("in good order, at least 7 events undelivered\n"));
  EXPECT_THAT(stages_text(all),
              EndsWith("           7 events of group 'group' did not reach their slice: it was "
                       "not connected for too long, or had built them already\n"));
}

TEST_F(StagesViewTest, events_that_were_lost_count_in_whichever_stage_that_was) {
  result(group, 302, false, 0, 7);
  result(slice0, 100, true, 0, 0);
  result(slice1, 200, true, 0, 2);
  const json::Value all = view_.result();
  EXPECT_EQ(all.at("events").at("lost").natural(), 9U);
  EXPECT_THAT(stages_text(all),
              HasSubstr("0 incomplete, 9 lost\n           lost: 7 in group 'group', 2 in "
                        "slice 'b/slice.toml'\n"));
}

TEST(StagesOfTwoGroups, an_event_that_a_group_has_lost_counts_as_lost_only_if_no_slice_builds_it) {
  const std::vector<config::Configuration> all{configuration_of("group0.toml", true),
                                               configuration_of("group1.toml", true),
                                               configuration_of("slice.toml", false)};
  StagesView view{all};
  const auto result = [&](std::size_t index, int built, int lost) {
    view.on_report(index, json::Object{{"report", "result"},
                                       {"events", json::Object{{"built", built}, {"lost", lost}}}});
  };
  result(0, 300, 0);
  result(1, 295, 5); // the slice builds three of them without this group, and loses the others
  result(2, 298, 2);
  EXPECT_EQ(view.result().at("events").at("lost").natural(), 2U);
}

TEST(StagesOfTwoGroups, an_event_that_both_groups_have_lost_counts_once) {
  const std::vector<config::Configuration> groups{configuration_of("group0.toml", true),
                                                  configuration_of("group1.toml", true)};
  StagesView view{groups};
  for (const std::size_t index : {0U, 1U}) {
    view.on_report(
        index, json::Object{{"report", "result"}, {"events", json::Object{{"lost", 5 + index}}}});
  }
  EXPECT_EQ(view.result().at("events").at("lost").natural(), 6U);
  EXPECT_THAT(stages_text(view.result()),
              HasSubstr("lost: 5 in group 'group0', 6 in group 'group1'\n"));
}

TEST_F(StagesViewTest, what_was_dropped_in_any_configuration_is_said) {
  result(group, 30);
  json::Value report = json::Object{{"report", "result"}, {"ok", true}, {"balanced", true}};
  report["fragments"]["dropped"] = 1;
  view_.on_report(slice0, report);
  view_.on_report(slice1, report);
  EXPECT_THAT(stages_text(view_.result()),
              HasSubstr("every fragment accounted for, 2 fragments dropped\n"));
}

TEST_F(StagesViewTest, a_readout_unit_that_died_in_a_group_is_named_for_all) {
  json::Value report = json::Object{{"report", "result"}, {"ok", true}, {"balanced", true}};
  report["nodes"]["ru0"] = json::Object{{"role", "readout"}, {"died", 1}};
  view_.on_report(group, report);
  result(slice0, 10);
  result(slice1, 20);
  EXPECT_THAT(stages_text(view_.result()),
              HasSubstr("2 slices: ended in good order, every fragment accounted for but those "
                        "that were lost in ru0 of group before they were announced\n"));
}

TEST_F(StagesViewTest, what_is_lost_is_not_known_where_a_slice_has_no_ledger) {
  json::Value report = json::Object{{"report", "result"}, {"error", "it died"}};
  report["events"]["built"] = 7;
  report["ledger"] = false;
  view_.on_report(slice0, report);
  result(slice1, 20);
  const json::Value all = view_.result();
  EXPECT_EQ(all.at("events").dump(), R"({"built":27})");
  EXPECT_THAT(stages_text(all), HasSubstr("events     27 built by the slices\n"));
}

TEST_F(StagesViewTest, the_first_that_failed_is_the_reason) {
  result(group, 30, false);
  result(slice0, 10);
  view_.on_failure(slice1, "killed by signal 9 (Killed)");
  view_.on_failure(group, "exit status 1");
  const json::Value all = view_.result();
  EXPECT_FALSE(all.at("ok").boolean());
  EXPECT_FALSE(all.at("balanced").boolean());
  EXPECT_EQ(all.at("error").text(), "b/slice.toml: killed by signal 9 (Killed)");
  EXPECT_EQ(all.at("configurations").at("group").at("error").text(), "no order");
  const std::string text = stages_text(all);
  EXPECT_THAT(text, HasSubstr("slice, b/slice.toml)\nFAILED: killed by signal 9 (Killed)\n"));
  EXPECT_THAT(text, HasSubstr("FAILED: b/slice.toml: killed by signal 9 (Killed)\nevents     10"));
}

TEST_F(StagesViewTest, a_configuration_that_fails_after_a_good_result_is_not_good) {
  result(group, 30);
  result(slice0, 10);
  result(slice1, 20);
  view_.on_failure(slice0, "it has ended before the groups");
  const json::Value all = view_.result();
  EXPECT_EQ(all.at("error").text(), "a/slice.toml: it has ended before the groups");
  EXPECT_FALSE(all.at("configurations").at("a/slice.toml").at("ok").boolean());
  EXPECT_THAT(stages_text(all), HasSubstr("2 slices: FAILED: a/slice.toml: it has ended before"));
}

TEST_F(StagesViewTest, one_that_was_not_started_after_a_failure_says_so) {
  view_.on_failure(slice0, "killed");
  result(slice1, 20);
  const json::Value all = view_.result();
  EXPECT_FALSE(all.at("ok").boolean());
  EXPECT_EQ(all.at("configurations").at("group").at("error").text(), "it was not started");
}

TEST_F(StagesViewTest, who_stops_before_the_groups_start_has_not_failed) {
  result(slice0, 0);
  result(slice1, 0);
  const json::Value all = view_.result();
  EXPECT_TRUE(all.at("ok").boolean()) << all.at("error").text();
  EXPECT_TRUE(all.at("balanced").boolean());
  EXPECT_THAT(stages_text(all), HasSubstr("not started: it was stopped before"));
}

} // namespace
} // namespace fanin::executive
