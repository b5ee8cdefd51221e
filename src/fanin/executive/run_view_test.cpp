#include "fanin/executive/run_view.hpp"

#include <filesystem>
#include <fstream>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fanin/executive/report.hpp"

namespace fanin::executive {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// The reports of a run of which one builder unit ends with an error.
class RunViewTest : public ::testing::Test {
protected:
  RunViewTest()
      : configuration_(config::parse("[[readout]]\nsource = [{ id = 1, type = \"emulator\" }]\n"
                                     "[[builder]]\ncount = 2\n",
                                     "test.toml")
                           .value()),
        plans_(configuration_.nodes.size()),
        view_(configuration_, plans_) {}

  void progress(const char* state) {
    json::Value report;
    report["report"] = "progress";
    report["run"] = 1;
    report["state"] = state;
    view_.on_report(report);
  }
  void running(double time_s, int events, int open, const char* waiting_for) {
    json::Value report;
    report["report"] = "progress";
    report["state"] = "running";
    report["time_s"] = time_s;
    report["events"] = events;
    report["open"] = open;
    report["waiting_for"] = waiting_for;
    report["buffers"] = json::Value{};
    for (const char* key : {"bytes_built", "incomplete", "readouts", "builders"}) report[key] = 1;
    for (const char* key : {"pages", "in_use"}) report["buffers"][key] = 1;
    view_.on_report(report);
  }
  void failed(const char* node, bool started = true, bool joined = false) {
    json::Value report;
    report["report"] = "end";
    report["node"] = node;
    report["ok"] = false;
    report["started"] = started;
    if (joined) report["joined"] = true;
    report["error"] = "it broke";
    view_.on_report(report);
  }
  // `starts` of bu1, as the event manager counts them.
  void ended(int built, int starts) {
    json::Value report;
    report["report"] = "result";
    report["run"] = 1;
    report["balanced"] = true;
    report["ok"] = true;
    report["error"] = "";
    report["events"]["built"] = built;
    report["nodes"]["bu1"]["starts"] = starts;
    view_.on_report(report);
  }

  config::Configuration configuration_;
  std::vector<NodePlan> plans_;
  RunView view_;
};

TEST_F(RunViewTest, what_only_run_control_shows_changes_nothing) {
  running(1, 100, 0, "");
  const std::string line = view_.progress_line();
  const std::string result = view_.result().dump();
  for (const char* kind : {"summary", "usage"}) {
    view_.on_report(json::Object{
        {"report", kind}, {"node", "bu0"}, {"time_s", 9.5}, {"bytes_built", 7}, {"cpu_s", 1.5}});
  }
  EXPECT_EQ(view_.progress_line(), line);
  EXPECT_EQ(view_.result().dump(), result);
}

TEST_F(RunViewTest, a_node_that_fails_before_all_are_there_fails_the_run) {
  progress("waiting");
  failed("bu1"); // it had joined, and was needed for the begin
  ended(0, 1);
  EXPECT_FALSE(succeeded(view_.result()));
  EXPECT_EQ(view_.result().at("error").text(), "bu1: it broke");
}

TEST_F(RunViewTest, a_process_that_dies_before_all_are_there_fails_the_run) {
  progress("waiting");
  view_.on_exit("bu1", {.status = -1, .signal = 9});
  ended(0, 0);
  EXPECT_FALSE(succeeded(view_.result()));
  EXPECT_EQ(view_.result().at("error").text(), "bu1: killed by signal 9 (Killed)");
  progress("running"); // it was started again
  EXPECT_TRUE(succeeded(view_.result()));
}

TEST_F(RunViewTest, a_node_that_dies_in_mid_run_is_the_ledgers_affair) {
  progress("running");
  failed("bu1");
  ended(1000, 1);
  EXPECT_TRUE(succeeded(view_.result()));
}

TEST_F(RunViewTest, a_source_that_failed_fails_the_run_and_where_its_readout_unit_was_started) {
  progress("running");
  ended(1000, 1);
  view_.on_report(json::Object{{"report", "end"},
                               {"node", "ru0"},
                               {"ok", true},
                               {"failed_sources", json::Object{{"0x1", "no more"}}}});
  EXPECT_EQ(view_.result().at("error").text(), "source 0x1 of ru0 has failed: no more");
  EXPECT_EQ(view_.result().at("failed_sources").at("0x1").text(), "no more");
  EXPECT_EQ(view_.nodes_result().at("error").text(), "source 0x1 of ru0 has failed: no more");
}

TEST_F(RunViewTest, a_required_source_whose_sender_sent_nothing_fails_a_run_with_events) {
  struct Case {
    bool required = true;
    int read = 0;
    int connections = 1;
    int built = 1000;
    const char* error = "";
  };
  for (const Case& c :
       {Case{.error = "source 0x1 of ru0 has failed: its sender was connected, and sent nothing in "
                      "the whole run"},
        Case{.required = false}, Case{.read = 5}, // before its readout unit was started again
        Case{.connections = 0}, Case{.built = 0}}) {
    RunView view(configuration_, plans_);
    json::Value counters{json::Object{}};
    if (c.connections != 0) counters["0x1"]["connections"] = c.connections;
    view.on_report(json::Object{{"report", "end"},
                                {"node", "ru0"},
                                {"ok", true},
                                {"said_nothing", json::List{"0x1"}},
                                {"source_counters", counters}});
    json::Value result =
        json::Object{{"report", "result"}, {"ok", true}, {"balanced", true}, {"error", ""}};
    result["events"]["built"] = c.built;
    result["sources"]["0x1"] = json::Object{{"required", c.required}, {"read", c.read}};
    view.on_report(result);
    EXPECT_EQ(view.result().at("error").text(), c.error);
    EXPECT_EQ(succeeded(view.result()), c.error[0] == '\0');
  }
}

TEST_F(RunViewTest, a_file_that_was_removed_during_the_run_fails_it_and_is_named) {
  progress("running");
  view_.on_report(gone_report("/data/run000001_bu0_i1_0001.h5", "a run file with 7 events"));
  ended(1000, 1);
  const json::Value result = view_.result();
  EXPECT_FALSE(succeeded(result));
  EXPECT_EQ(result.at("error").text(), "/data/run000001_bu0_i1_0001.h5, a run file with 7 events, "
                                       "was removed, renamed, replaced or cut during the run");
  EXPECT_EQ(result.at("gone_files").object().size(), 1U);
  EXPECT_FALSE(view_.nodes_result().at("ok").boolean());
}

TEST_F(RunViewTest, what_a_dead_readout_unit_had_read_is_not_said_to_be_accounted_for) {
  progress("running");
  ended(1000, 1);
  EXPECT_THAT(summary_text(view_.result()), HasSubstr("every fragment accounted for\n"));
  failed("ru0");
  EXPECT_EQ(view_.result().at("nodes").at("ru0").at("error").text(), "it broke");
  EXPECT_THAT(summary_text(view_.result()), HasSubstr("but those that were lost in ru0"));
}

TEST_F(RunViewTest, what_was_dropped_is_said_beside_the_good_order) {
  progress("running");
  ended(1000, 1);
  json::Value result = view_.result();
  result["fragments"]["dropped"] = 7;
  EXPECT_THAT(summary_text(result),
              HasSubstr("every fragment accounted for, 7 fragments dropped\n"));
}

TEST_F(RunViewTest, a_readout_unit_that_died_and_was_not_back_is_named) {
  progress("running");
  view_.on_exit("ru0", {.status = 1, .signal = 9});
  json::Value report; // of the process that was started after it
  report["report"] = "end";
  report["node"] = "ru0";
  report["ok"] = true;
  view_.on_report(report);
  view_.on_exit("ru0", {});
  ended(1000, 1);
  EXPECT_EQ(view_.result().at("nodes").at("ru0").at("died").natural(), 1U);
  EXPECT_THAT(summary_text(view_.result()), HasSubstr("but those that were lost in ru0"));
}

TEST_F(RunViewTest, a_node_that_could_not_start_fails_the_run) {
  progress("running");
  failed("bu1", false);
  ended(1000, 0);
  EXPECT_FALSE(succeeded(view_.result()));
}

// The run had begun with another builder unit by chance.
TEST_F(RunViewTest, a_node_that_joined_and_could_not_make_its_file_fails_the_run) {
  progress("running");
  failed("bu1", false, true);
  ended(1000, 1);
  EXPECT_FALSE(succeeded(view_.result()));
  EXPECT_EQ(view_.result().at("error").text(), "bu1: it broke");
  ended(1000, 2); // it had been there before, too
  EXPECT_TRUE(succeeded(view_.result()));
}

TEST_F(RunViewTest, without_an_event_manager_there_is_no_success) {
  progress("running");
  failed("evm");
  EXPECT_FALSE(succeeded(view_.result()));
  EXPECT_EQ(view_.result().at("error").text(), "it broke"); // nobody else is missed
}

TEST_F(RunViewTest, the_sums_have_what_each_start_of_a_node_counted) {
  const auto end = [this](const char* file, int events) {
    json::Value report;
    report["report"] = "end";
    report["node"] = "bu1";
    report["ok"] = true;
    report["events_stored"] = events;
    report["files"].append(file);
    view_.on_report(report);
    view_.on_exit("bu1", {});
  };
  progress("running");
  end("1.h5", 100);
  end("2.h5", 20);
  view_.on_exit("ru0", {.status = 1, .signal = 9});
  const json::Value result = view_.result();
  EXPECT_EQ(result.at("events").at("built").natural(), 120U);
  EXPECT_EQ(result.at("files").list().size(), 2U);
  EXPECT_EQ(result.at("not_summed").dump(), R"(["ru0","bu0"])");
  EXPECT_THAT(result.at("error").text(),
              HasSubstr("; without ru0, which died as well; without those of bu0"));
  EXPECT_EQ(result.at("fragments").find("lost"), nullptr);
  EXPECT_THAT(summary_text(result), HasSubstr("0 read, 0 built   not checked"));
}

TEST_F(RunViewTest, without_an_event_manager_each_file_beside_the_manifest_is_named_once) {
  const std::string folder = ::testing::TempDir() + "run_view_test//"; // as run.output may end
  std::filesystem::create_directories(folder);
  for (const char* name : {"run000001_bu0_i1_0001.h5", "run000001_bu1_i1_0001.h5",
                           "run000002_bu0_i1_0001.h5", "run000001.manifest.json"})
    std::ofstream(folder + name).put('x');
  json::Value report;
  report["report"] = "progress";
  report["run"] = 1;
  report["manifest"] = folder + "run000001.manifest.json";
  view_.on_report(report);
  json::Value end;
  end["report"] = "end";
  end["node"] = "bu1";
  end["files"].append(folder + "run000001_bu1_i1_0001.h5");
  view_.on_report(end);
  EXPECT_EQ(view_.result().at("files").dump(),
            json::Value(json::List{folder + "run000001_bu0_i1_0001.h5",
                                   folder + "run000001_bu1_i1_0001.h5"})
                .dump());
  std::filesystem::remove_all(folder);
}

TEST_F(RunViewTest, a_run_that_stands_still_says_what_it_waits_for) {
  running(1, 1000, 5, "builder unit 'bu1' to start");
  running(2, 2000, 5, "builder unit 'bu1' to start");
  EXPECT_THAT(view_.progress_line(), Not(HasSubstr("waiting")));
  running(3, 2000, 5, "builder unit 'bu1' to start");
  EXPECT_THAT(view_.progress_line(), HasSubstr("waiting for builder unit 'bu1' to start"));
  running(4, 2000, 0, "readout unit 'ru0' to have event 2000"); // no beam
  EXPECT_THAT(view_.progress_line(), Not(HasSubstr("waiting")));
}

TEST(SummaryText, names_the_counters_of_a_source) {
  json::Value result = json::Object{{"run", 1}};
  result["sources"]["0x1"]["counters"] = json::Object{{"connections", 1}, {"not_allowed", 2}};
  EXPECT_THAT(summary_text(result), HasSubstr(" source 0x1: connections 1, not_allowed 2\n"));
}

TEST_F(RunViewTest, where_all_nodes_are_there_only_senders_are_missing) {
  const auto configuration =
      config::parse("[[readout]]\ncount = 2\nsource = [{ id = 1, type = \"emulator\" }]\n"
                    "[[builder]]\ncount = 2\n",
                    "test.toml")
          .value();
  RunView view(configuration, plans_);
  const auto waiting = [&view](int readouts, int builders) {
    view.on_report(json::Object{{"report", "progress"},
                                {"state", "waiting"},
                                {"readouts", readouts},
                                {"builders", builders},
                                {"waiting_for", "source 0x1 to have a sender"}});
    return view.only_senders_missing();
  };
  EXPECT_FALSE(waiting(1, 2));
  EXPECT_FALSE(waiting(2, 1));
  EXPECT_TRUE(waiting(2, 2));
  EXPECT_EQ(view.progress_line(), "waiting for source 0x1 to have a sender");
  view.on_report(json::Object{{"report", "progress"}, {"state", "running"}});
  EXPECT_TRUE(waiting(0, 0)) << "who is away then comes back";
}

TEST_F(RunViewTest, a_run_that_never_began_says_for_what_it_waited) {
  progress("waiting");
  const json::Value report = json::Object{{"report", "result"},
                                          {"ok", true},
                                          {"error", ""},
                                          {"balanced", true},
                                          {"waited_for", "source 0x1 to have a sender"}};
  view_.on_report(report);
  const json::Value result = view_.result();
  EXPECT_FALSE(succeeded(result));
  EXPECT_EQ(result.at("error").text(),
            "the run never began: it waited for source 0x1 to have a sender");
  EXPECT_EQ(result.find("waited_for"), nullptr);
}

TEST_F(RunViewTest, a_node_that_failed_is_why_a_run_never_began) {
  progress("waiting");
  failed("bu1");
  view_.on_report(json::Object{{"report", "result"}, {"ok", true}, {"waited_for", "bu1 to start"}});
  EXPECT_EQ(view_.result().at("error").text(), "bu1: it broke");
}

TEST(RunResult, says_why_it_is_not_ok) {
  const auto error_of = [](const builder::RunSummary& summary) {
    const json::Value result = to_json(summary, builder::System{});
    EXPECT_EQ(result.at("ok").boolean(), result.at("error").text().empty());
    return std::string{result.at("error").text()};
  };
  EXPECT_EQ(error_of({.balanced = true}), "");
  EXPECT_EQ(error_of({.balanced = false, .error = "no disk"}), "no disk");
  EXPECT_THAT(error_of({.balanced = true, .forced = true}), HasSubstr("stopped before"));
  EXPECT_THAT(error_of({.balanced = false}), HasSubstr("does not balance: 0 fragments were read"));
}

} // namespace
} // namespace fanin::executive
