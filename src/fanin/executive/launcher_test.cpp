// The launcher's decisions in virtual time, with processes that exist only here.
#include "fanin/executive/launcher.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace fanin::executive {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

// What a process was started with, and what it was asked for.
struct Started {
  std::vector<std::string> arguments;
  std::string input;
  std::vector<std::string> requests;
};

class ImaginedChild final : public Child {
public:
  ImaginedChild(pid_t pid, std::shared_ptr<Started> started, Handlers handlers)
      : pid_(pid), started_(std::move(started)), handlers_(std::move(handlers)) {}
  [[nodiscard]] pid_t pid() const override { return pid_; }
  void stop() override { ask("stop"); }
  void kill() override { ask("kill"); }
  void request(Request request) override { ask(std::string(name(request)).c_str()); }
  void report(const json::Value& report) const { handlers_.on_report(report); }
  void end(const ChildExit& exit) {
    pid_ = 0;
    handlers_.on_exit(exit);
  }

private:
  void ask(const char* what) {
    if (alive()) started_->requests.emplace_back(what);
  }

  pid_t pid_;
  std::shared_ptr<Started> started_;
  Handlers handlers_;
};

class LauncherTest : public ::testing::Test, Children {
protected:
  // The processes evm, ru0, bu0 and bu1, on this host or all but the event manager.
  void make(const std::vector<std::string>& overrides = {}, bool event_manager_here = true,
            bool held = false) {
    configuration_ = config::parse("[[readout]]\nsource = [{ id = 1, type = \"emulator\" }]\n"
                                   "[[builder]]\ncount = 2\n",
                                   "test.toml", overrides)
                         .value();
    configuration_.run.controlled = held;
    plans_.resize(configuration_.nodes.size());
    view_.emplace(configuration_, plans_);
    LauncherOptions options;
    options.command = {"/opt/fan in/fanin", "run", "it's.toml"};
    options.by_hand = options.command;
    options.input = "the text";
    options.log = log();
    options.on_report = [this](const json::Value&) { ++reports_; };
    for (std::size_t i = event_manager_here ? 0 : 1; i < configuration_.processes.size(); ++i)
      options.processes.push_back(i);
    launcher_.emplace(loop_, static_cast<Children&>(*this), configuration_, *view_,
                      std::move(options));
  }
  void start_all() {
    make();
    ASSERT_TRUE(launcher_->start());
    report("evm", "listening", "url", "tcp://127.0.0.1:7000");
  }
  void hold() {
    make({"run.restart=true"}, true, true);
    ASSERT_TRUE(launcher_->start());
    report("evm", "listening", "url", "tcp://127.0.0.1:7000");
    report("evm", "progress", "state", "waiting");
  }
  void begin() { report("evm", "progress", "state", "running"); }
  void report(const std::string& process, const char* kind, const char* key = "node",
              const std::string& value = "") {
    json::Value report;
    report["report"] = kind;
    report["node"] = process;
    report["run"] = 1;
    if (!value.empty()) report[key] = value;
    alive_.at(process)->report(report);
  }
  // In good order: after its last report.
  void end(const std::string& process, int status = 0) {
    report(process, "end");
    exit(process, {.status = status});
  }
  void exit(const std::string& process, const ChildExit& exit) {
    ImaginedChild* const child = alive_.at(process);
    alive_.erase(process);
    child->end(exit);
  }
  void kill(const std::string& process) { exit(process, {.status = -1, .signal = SIGKILL}); }
  void pass(Duration time) {
    clock_.advance(time);
    while (loop_.turn()) {
    }
  }
  void pass_in_seconds(int count) {
    for (int i = 0; i < count; ++i) pass(seconds{1});
  }
  [[nodiscard]] std::vector<std::string> requests_of(const std::string& process) const {
    return started_.at(process).back()->requests;
  }
  [[nodiscard]] std::size_t starts_of(const std::string& process) const {
    const auto found = started_.find(process);
    return found == started_.end() ? 0 : found->second.size();
  }

  std::map<std::string, std::vector<std::shared_ptr<Started>>> started_; // by process
  std::map<std::string, ImaginedChild*> alive_;
  std::vector<std::pair<pid_t, std::uint64_t>> told_; // which process of which session's death
  std::vector<std::string> log_;
  bool can_start_ = true;
  int reports_ = 0;
  VirtualClock clock_;
  net::Loop loop_{clock_};
  config::Configuration configuration_;
  std::vector<NodePlan> plans_;
  std::optional<RunView> view_;
  std::optional<Launcher> launcher_;

private:
  LogFunction log() {
    return [this](LogLevel level, std::string_view text) {
      if (level != LogLevel::debug) log_.emplace_back(text);
    };
  }
  Result<std::unique_ptr<Child>> start(std::size_t /*number*/, std::vector<std::string> arguments,
                                       const std::string& input,
                                       Child::Handlers handlers) override {
    if (!can_start_) return fail(ErrorKind::exhausted, "no process is left");
    const auto name = std::ranges::find(arguments, "--node") + 1;
    const std::string process = *name;
    auto started = std::make_shared<Started>(std::move(arguments), input);
    started_[process].push_back(started);
    auto child = std::make_unique<ImaginedChild>(++last_pid_, started, std::move(handlers));
    alive_[process] = child.get();
    return child;
  }
  void tell_of_death(Child& child, std::uint64_t session) override {
    told_.emplace_back(child.pid(), session);
  }

  pid_t last_pid_ = 100;
};

TEST_F(LauncherTest, the_event_manager_starts_first_and_the_others_learn_where_it_listens) {
  make();
  ASSERT_TRUE(launcher_->start());
  EXPECT_EQ(started_.size(), 1U);
  report("evm", "listening", "url", "tcp://127.0.0.1:7000");
  EXPECT_EQ(started_.size(), 4U);
  const Started& builder = *started_.at("bu1").front();
  const std::vector<std::string> words(builder.arguments.begin(), builder.arguments.end() - 1);
  EXPECT_THAT(words, ElementsAre("/opt/fan in/fanin", "run", "it's.toml", "--node", "bu1", "--set",
                                 "network.control=tcp://127.0.0.1:7000", "--session"));
  EXPECT_EQ(builder.input, "the text");
  EXPECT_EQ(reports_, 1);
}

TEST_F(LauncherTest, without_an_event_manager_here_all_start_at_once) {
  make({}, false);
  ASSERT_TRUE(launcher_->start());
  EXPECT_EQ(started_.size(), 3U);
  EXPECT_THAT(started_.at("ru0").front()->arguments, Not(Contains("--set")));
  launcher_->on_signal();
  for (const char* const process : {"ru0", "bu0", "bu1"})
    EXPECT_THAT(requests_of(process), ElementsAre("stop")) << process;
}

TEST_F(LauncherTest, ends_when_all_have_ended) {
  start_all();
  begin();
  report("evm", "result");
  EXPECT_THAT(requests_of("evm"), IsEmpty());
  for (const char* const process : {"ru0", "bu0", "bu1"}) {
    EXPECT_THAT(requests_of(process), ElementsAre("stop")) << process;
    end(process);
  }
  EXPECT_FALSE(launcher_->all_ended());
  end("evm");
  EXPECT_TRUE(launcher_->all_ended());
  EXPECT_TRUE(launcher_->outcome());
  EXPECT_THAT(log_, IsEmpty());
}

TEST_F(LauncherTest, who_does_not_end_in_time_is_killed) {
  start_all();
  begin();
  report("evm", "result");
  for (const char* const process : {"evm", "ru0", "bu0"}) end(process);
  pass(seconds{9});
  EXPECT_THAT(requests_of("bu1"), ElementsAre("stop"));
  pass(seconds{1});
  EXPECT_THAT(requests_of("bu1"), ElementsAre("stop", "kill"));
  EXPECT_THAT(log_, ElementsAre("bu1 does not end: killing it"));
}

TEST_F(LauncherTest, a_signal_goes_to_the_event_manager_and_a_second_one_hurries_all) {
  start_all();
  begin();
  launcher_->on_signal();
  EXPECT_THAT(requests_of("evm"), ElementsAre("stop"));
  EXPECT_THAT(requests_of("bu0"), IsEmpty());
  launcher_->on_signal();
  EXPECT_THAT(requests_of("evm"), ElementsAre("stop", "stop"));
  pass(seconds{2});
  launcher_->on_signal();
  EXPECT_THAT(requests_of("evm"), ElementsAre("stop", "stop", "stop"));
  pass(seconds{1}); // from the second one on
  for (const char* const process : {"evm", "ru0", "bu0", "bu1"})
    EXPECT_EQ(requests_of(process).back(), "kill") << process;
}

TEST_F(LauncherTest, the_event_manager_is_told_whose_session_has_died) {
  start_all();
  begin();
  const pid_t event_manager = alive_.at("evm")->pid();
  const std::string session = started_.at("bu0").front()->arguments.back();
  kill("bu0");
  ASSERT_EQ(told_.size(), 1U);
  EXPECT_EQ(told_.front().first, event_manager);
  EXPECT_EQ(std::to_string(told_.front().second), session);
  end("ru0"); // in good order: nobody is told
  EXPECT_EQ(told_.size(), 1U);
}

TEST_F(LauncherTest, a_dead_process_stays_dead_and_the_log_says_how_to_start_it) {
  start_all();
  begin();
  kill("bu0");
  pass(seconds{60});
  EXPECT_EQ(starts_of("bu0"), 1U);
  ASSERT_EQ(log_.size(), 1U);
  EXPECT_THAT(log_.front(), HasSubstr("bu0 died: killed by signal 9 (Killed)"));
  EXPECT_THAT(log_.front(), HasSubstr("'/opt/fan in/fanin' run 'it'\\''s.toml' --node bu0 --set "
                                      "network.control=tcp://127.0.0.1:7000"));
}

TEST_F(LauncherTest, a_death_before_the_run_begins_ends_it) {
  start_all();
  kill("ru0");
  EXPECT_THAT(requests_of("evm"), ElementsAre("stop"));
  ASSERT_EQ(log_.size(), 1U);
  EXPECT_THAT(log_.front(), HasSubstr("the run cannot begin without it"));
}

TEST_F(LauncherTest, a_held_run_is_started_by_its_event_manager_when_that_is_asked_for) {
  hold();
  launcher_->on_request(Request::start);
  EXPECT_THAT(requests_of("evm"), ElementsAre("start"));
  begin();
  launcher_->on_request(Request::stop);
  launcher_->on_request(Request::stop); // two people ask for the same
  EXPECT_THAT(requests_of("evm"), ElementsAre("start", "stop"));
  launcher_->on_request(Request::abort);
  EXPECT_THAT(requests_of("evm"), ElementsAre("start", "stop", "stop"));
}

TEST_F(LauncherTest, a_death_while_a_run_is_held_ends_it_whatever_restart_says) {
  hold();
  kill("bu0");
  pass(seconds{60});
  EXPECT_EQ(starts_of("bu0"), 1U);
  EXPECT_THAT(requests_of("evm"), ElementsAre("stop"));
}

TEST_F(LauncherTest, with_restart_a_dead_process_starts_again_each_time_later_with_a_new_session) {
  make({"run.restart=true"});
  ASSERT_TRUE(launcher_->start());
  report("evm", "listening", "url", "tcp://127.0.0.1:7000");
  begin();
  std::size_t starts = 1;
  for (const int pause_ms : {200, 400, 800, 1600, 3200, 5000, 5000}) {
    kill("bu0");
    pass(milliseconds{pause_ms - 1});
    EXPECT_EQ(starts_of("bu0"), starts) << pause_ms;
    pass(milliseconds{1});
    EXPECT_EQ(starts_of("bu0"), ++starts) << pause_ms;
  }
  const auto& all = started_.at("bu0");
  EXPECT_NE(all[0]->arguments.back(), all[1]->arguments.back());
  pass(std::chrono::minutes{1}); // it lived
  kill("bu0");
  pass(milliseconds{200});
  EXPECT_EQ(starts_of("bu0"), ++starts);
}

TEST_F(LauncherTest, a_restart_that_fails_is_tried_again) {
  make({"run.restart=true"});
  ASSERT_TRUE(launcher_->start());
  report("evm", "listening", "url", "tcp://127.0.0.1:7000");
  kill("bu0");
  can_start_ = false;
  pass(milliseconds{200});
  can_start_ = true;
  pass(milliseconds{400});
  EXPECT_EQ(starts_of("bu0"), 2U);
  EXPECT_THAT(log_, Contains("no process is left"));
}

TEST_F(LauncherTest, while_a_run_stops_only_builder_units_start_again) {
  make({"run.restart=true"});
  ASSERT_TRUE(launcher_->start());
  report("evm", "listening", "url", "tcp://127.0.0.1:7000");
  begin();
  launcher_->on_signal();
  kill("ru0");
  kill("bu0");
  pass(seconds{10});
  EXPECT_EQ(starts_of("ru0"), 1U);
  EXPECT_EQ(starts_of("bu0"), 2U);
}

TEST_F(LauncherTest, a_silent_builder_unit_is_killed_and_starts_again_whatever_restart_says) {
  start_all();
  begin();
  report("evm", "silent", "silent", "bu1");
  EXPECT_THAT(requests_of("bu1"), ElementsAre("kill"));
  EXPECT_THAT(requests_of("bu0"), IsEmpty());
  kill("bu1");
  pass(milliseconds{200});
  EXPECT_EQ(starts_of("bu1"), 2U);
  report("evm", "silent", "silent", "ru0"); // it holds fragments that nobody else has
  EXPECT_THAT(requests_of("ru0"), IsEmpty());
}

TEST_F(LauncherTest, a_silent_readout_unit_of_a_slice_is_killed_and_starts_again) {
  make({"readout.0.source.0.type=receive", "slice.number=0", "slice.of=1", "slice.block=1024",
        "readout.0.source.0.merged=[5, 6]"});
  ASSERT_TRUE(launcher_->start());
  report("evm", "listening", "url", "tcp://127.0.0.1:7000");
  begin();
  report("evm", "silent", "silent", "ru0");
  EXPECT_THAT(requests_of("ru0"), ElementsAre("kill"));
  EXPECT_THAT(log_.back(), HasSubstr("ru0 was given up: killing it"));
  kill("ru0");
  pass(milliseconds{200});
  EXPECT_EQ(starts_of("ru0"), 2U);
}

TEST_F(LauncherTest, a_filter_unit_is_replaced_whatever_ends_it) {
  make({"filter.type=selection"});
  ASSERT_TRUE(launcher_->start());
  report("evm", "listening", "url", "tcp://127.0.0.1:7000");
  report("fu0", "filters");
  exit("fu0", {.status = 3}); // before the run has begun
  EXPECT_THAT(requests_of("evm"), IsEmpty());
  pass(milliseconds{200});
  EXPECT_EQ(starts_of("fu0"), 2U);
  begin();
  report("fu0", "filters");
  exit("fu0", {.status = -1, .signal = SIGALRM});
  EXPECT_THAT(log_.back(), HasSubstr("an event took longer than its time_limit"));
  pass(milliseconds{200});
  EXPECT_EQ(starts_of("fu0"), 2U); // it had hardly lived
  pass(milliseconds{200});
  EXPECT_EQ(starts_of("fu0"), 3U);
  report("fu0", "filters");
  pass(seconds{1});
  report("bu0", "silent", "silent", "fu0");
  EXPECT_THAT(requests_of("fu0"), ElementsAre("kill"));
  kill("fu0");
  pass(milliseconds{200});
  EXPECT_EQ(starts_of("fu0"), 4U);
  report("fu0", "filters");
  end("fu0", 1); // the filter threw
  pass(seconds{1});
  EXPECT_EQ(starts_of("fu0"), 5U);
}

TEST_F(LauncherTest, a_filter_unit_that_is_refused_is_not_replaced) {
  make({"filter.type=selection"});
  ASSERT_TRUE(launcher_->start());
  report("evm", "listening", "url", "tcp://127.0.0.1:7000");
  begin();
  report("fu0", "filters");
  json::Value last;
  last["report"] = "end";
  last["node"] = "fu0";
  last["refused"] = true;
  alive_.at("fu0")->report(last);
  exit("fu0", {.status = 1});
  EXPECT_THAT(log_.back(), HasSubstr("fu0 failed: exit status 1; start it again with"));
  pass(seconds{1});
  EXPECT_EQ(starts_of("fu0"), 1U);
}

TEST_F(LauncherTest, a_filter_that_cannot_be_made_ends_the_run_before_it_begins) {
  make({"filter.type=selection"});
  ASSERT_TRUE(launcher_->start());
  report("evm", "listening", "url", "tcp://127.0.0.1:7000");
  exit("fu0", {.status = 2});
  EXPECT_THAT(log_.back(), HasSubstr("the run cannot begin without it"));
  EXPECT_THAT(requests_of("evm"), ElementsAre("stop"));
}

TEST_F(LauncherTest, a_first_signal_after_the_end_of_the_run_asks_for_no_more) {
  start_all();
  begin();
  end("evm");
  launcher_->on_signal();
  EXPECT_THAT(requests_of("bu0"), ElementsAre("stop"));
  launcher_->on_signal();
  EXPECT_THAT(requests_of("bu0"), ElementsAre("stop", "stop"));
}

TEST_F(LauncherTest, the_death_of_the_event_manager_ends_everything) {
  start_all();
  begin();
  kill("evm");
  for (const char* const process : {"ru0", "bu0", "bu1"}) {
    EXPECT_THAT(requests_of(process), ElementsAre("stop")) << process;
    end(process);
  }
  EXPECT_TRUE(launcher_->all_ended());
  EXPECT_THAT(log_.front(), HasSubstr("everything stops, what was built is safe"));
}

TEST_F(LauncherTest, a_frozen_event_manager_is_named_and_then_killed) {
  start_all();
  begin();
  pass_in_seconds(4);
  EXPECT_THAT(log_, IsEmpty());
  pass_in_seconds(1);
  EXPECT_THAT(log_, ElementsAre(HasSubstr("evm has reported nothing for 5 s:")));
  EXPECT_THAT(view_->progress_line(), HasSubstr("waiting for evm, silent for 5 s"));
  pass_in_seconds(54);
  EXPECT_THAT(requests_of("evm"), IsEmpty());
  pass_in_seconds(1);
  EXPECT_THAT(requests_of("evm"), ElementsAre("kill"));
  kill("evm");
  for (const char* const process : {"ru0", "bu0", "bu1"}) end(process);
  EXPECT_TRUE(launcher_->all_ended());
  EXPECT_THAT(view_->result().at("error").text(), HasSubstr("reported nothing for 60 s"));
}

TEST_F(LauncherTest, an_event_manager_that_goes_on_in_time_is_not_killed) {
  start_all();
  begin();
  pass_in_seconds(59);
  begin();
  EXPECT_THAT(log_.back(), HasSubstr("evm reports again"));
  EXPECT_THAT(view_->progress_line(), Not(HasSubstr("silent")));
  pass_in_seconds(59);
  EXPECT_THAT(requests_of("evm"), IsEmpty());
}

TEST_F(LauncherTest, an_event_manager_may_be_silent_for_as_long_as_its_nodes_wait_for_it) {
  make({"network.give_up_after=90s"});
  ASSERT_TRUE(launcher_->start());
  report("evm", "listening", "url", "tcp://127.0.0.1:7000");
  pass_in_seconds(89);
  EXPECT_THAT(requests_of("evm"), IsEmpty());
  pass_in_seconds(1);
  EXPECT_THAT(requests_of("evm"), ElementsAre("kill"));
}

TEST_F(LauncherTest, a_launcher_that_was_frozen_itself_blames_nobody) {
  start_all();
  begin();
  pass(std::chrono::hours{1});
  EXPECT_THAT(log_, IsEmpty());
}

TEST_F(LauncherTest, a_process_that_cannot_be_started_ends_the_run_with_that_error) {
  make();
  can_start_ = false;
  EXPECT_FALSE(launcher_->start());
  can_start_ = true;
  ASSERT_TRUE(launcher_->start());
  can_start_ = false;
  report("evm", "listening", "url", "tcp://127.0.0.1:7000");
  ASSERT_FALSE(launcher_->outcome());
  EXPECT_EQ(launcher_->outcome().error().text, "no process is left");
  end("evm");
  EXPECT_TRUE(launcher_->all_ended());
}

} // namespace
} // namespace fanin::executive
