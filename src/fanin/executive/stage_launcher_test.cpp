// Which configuration starts or is stopped when, in virtual time, with processes that exist only
// here.
#include "fanin/executive/stage_launcher.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <map>
#include <optional>

#include <fmt/format.h>

#include "fanin/base/clock.hpp"

namespace fanin::executive {
namespace {

using std::chrono::seconds;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

class FakeProcess final : public Child {
public:
  FakeProcess(Handlers handlers, std::vector<std::string>& requests)
      : handlers_(std::move(handlers)), requests_(requests) {}
  [[nodiscard]] pid_t pid() const override { return alive_ ? 7 : 0; }
  void stop() override { requests_.emplace_back("stop"); }
  void kill() override { requests_.emplace_back("kill"); }
  void request(Request request) override { requests_.emplace_back(name(request)); }
  void report(const json::Value& report) const { handlers_.on_report(report); }
  void end(const ChildExit& exit) {
    alive_ = false;
    handlers_.on_exit(exit);
  }

private:
  Handlers handlers_;
  std::vector<std::string>& requests_;
  bool alive_ = true;
};

// The slices 1 and 2, and the groups 0 and 3.
class StageLauncherTest : public ::testing::Test, Children {
protected:
  StageLauncherTest() { make_launcher(); }
  void make_launcher() {
    StageOptions options;
    for (const char* const name : {"group0", "slice0", "slice1", "group1"}) {
      options.configurations.push_back(
          {.name = name, .group = name[0] == 'g', .command = {name}, .input = "text"});
    }
    options.on_report = [this](std::size_t, const json::Value&) { ++reports_; };
    options.on_failure = [this](std::size_t index, const std::string& why) {
      failures_.push_back(fmt::format("{}: {}", index, why));
    };
    options.log = [this](LogLevel level, std::string_view text) {
      if (level != LogLevel::debug) log_.emplace_back(text);
    };
    launcher_.emplace(loop_, static_cast<Children&>(*this), std::move(options));
    started_ = launcher_->start();
    EXPECT_EQ(started_.has_value(), cannot_start_ != 1U);
  }
  void be_ready(std::size_t index, const char* state = "waiting") {
    json::Value report;
    report["report"] = "progress";
    report["state"] = state;
    report["ready"] = true;
    processes_.at(index)->report(report);
  }
  void run_all() {
    be_ready(1);
    be_ready(2);
    log_.clear();
  }
  void pass(Duration duration) {
    clock_.advance(duration);
    while (loop_.turn()) {
    }
  }
  void end(std::size_t index, const ChildExit& exit = {}) { processes_.at(index)->end(exit); }

  std::map<std::size_t, FakeProcess*> processes_; // that were started, by index
  std::map<std::size_t, std::vector<std::string>> requests_; // to a process
  std::vector<std::string> failures_;
  std::vector<std::string> log_;
  std::optional<std::size_t> cannot_start_;
  Result<> started_;
  int reports_ = 0;
  VirtualClock clock_;
  net::Loop loop_{clock_};
  std::optional<StageLauncher> launcher_;

private:
  Result<std::unique_ptr<Child>> start(std::size_t index, std::vector<std::string> /*arguments*/,
                                       const std::string& /*input*/,
                                       Child::Handlers handlers) override {
    if (cannot_start_ == index) return fail(ErrorKind::exhausted, "no process is left");
    auto child = std::make_unique<FakeProcess>(std::move(handlers), requests_[index]);
    processes_[index] = child.get();
    return child;
  }
  void tell_of_death(Child& /*child*/, std::uint64_t /*session*/) override {}
};

TEST_F(StageLauncherTest, groups_start_when_all_slices_are_ready) {
  EXPECT_EQ(processes_.size(), 2U);
  be_ready(2);
  be_ready(2);
  EXPECT_EQ(processes_.size(), 2U);
  be_ready(1);
  EXPECT_EQ(processes_.size(), 4U);
  EXPECT_EQ(reports_, 3);
}

TEST_F(StageLauncherTest, all_are_told_that_the_run_may_start_also_those_that_come_later) {
  launcher_->on_request(Request::start);
  run_all();
  for (std::size_t i = 0; i < 4; ++i) EXPECT_THAT(requests_[i], ElementsAre("start")) << i;
  launcher_->on_request(Request::stop);
  EXPECT_THAT(requests_[0], ElementsAre("start", "stop"));
  EXPECT_THAT(requests_[1], ElementsAre("start"));
}

TEST_F(StageLauncherTest, slices_are_stopped_when_the_last_group_has_ended) {
  run_all();
  end(0);
  EXPECT_THAT(requests_[1], IsEmpty());
  end(3);
  EXPECT_THAT(requests_[1], ElementsAre("stop"));
  EXPECT_THAT(requests_[2], ElementsAre("stop"));
  end(1);
  end(2);
  EXPECT_THAT(failures_, IsEmpty());
  EXPECT_THAT(log_, IsEmpty());
}

TEST_F(StageLauncherTest, a_signal_stops_the_groups_and_then_the_slices) {
  run_all();
  launcher_->on_signal();
  EXPECT_THAT(requests_[0], ElementsAre("stop"));
  EXPECT_THAT(requests_[3], ElementsAre("stop"));
  EXPECT_THAT(requests_[1], IsEmpty());
  end(3);
  EXPECT_THAT(requests_[1], IsEmpty());
  end(0);
  EXPECT_THAT(requests_[1], ElementsAre("stop"));
}

TEST_F(StageLauncherTest, a_slice_that_has_not_begun_does_not_hold_up_the_groups_that_stop) {
  run_all();
  be_ready(2, "running");
  end(0); // before its run began: slice 0 waits for it, and group 1 for slice 0
  launcher_->on_signal();
  EXPECT_THAT(requests_[1], IsEmpty());
  pass(seconds{5});
  EXPECT_THAT(requests_[1], ElementsAre("stop"));
  EXPECT_THAT(requests_[2], IsEmpty());
  end(1);
  end(3);
  EXPECT_THAT(requests_[1], ElementsAre("stop"));
  EXPECT_THAT(requests_[2], ElementsAre("stop"));
  EXPECT_THAT(failures_, IsEmpty()) << "it was asked to";
}

TEST_F(StageLauncherTest, before_the_groups_have_started_a_signal_stops_the_slices) {
  be_ready(1);
  launcher_->on_signal();
  EXPECT_THAT(requests_[2], ElementsAre("stop"));
  be_ready(2);
  EXPECT_EQ(processes_.size(), 2U);
}

TEST_F(StageLauncherTest, a_second_signal_stops_all_at_once_and_who_stays_is_killed) {
  run_all();
  launcher_->on_signal();
  launcher_->on_signal();
  EXPECT_THAT(requests_[0], ElementsAre("stop", "stop"));
  EXPECT_THAT(requests_[1], ElementsAre("stop", "stop"));
  end(0);
  pass(seconds{11});
  EXPECT_THAT(requests_[0], ElementsAre("stop", "stop"));
  EXPECT_THAT(requests_[1], ElementsAre("stop", "stop", "kill"));
  EXPECT_THAT(log_, Contains("slice0 does not end: killing it"));
}

TEST_F(StageLauncherTest, a_slice_that_dies_ends_the_others_in_order) {
  run_all();
  end(2, {.status = -1, .signal = SIGKILL});
  EXPECT_THAT(failures_, ElementsAre("2: killed by signal 9 (Killed)"));
  EXPECT_THAT(log_, ElementsAre("slice1 died: killed by signal 9 (Killed)",
                                "the other configurations stop, the groups first"));
  EXPECT_THAT(requests_[0], ElementsAre("stop"));
  EXPECT_THAT(requests_[1], IsEmpty());
  end(0);
  end(3);
  EXPECT_THAT(requests_[1], ElementsAre("stop"));
}

TEST_F(StageLauncherTest, a_group_that_fails_ends_the_others_in_order) {
  run_all();
  end(0, {.status = 1});
  EXPECT_THAT(failures_, ElementsAre("0: exit status 1"));
  EXPECT_THAT(requests_[3], ElementsAre("stop"));
  EXPECT_THAT(requests_[1], IsEmpty());
  end(3);
  EXPECT_THAT(requests_[1], ElementsAre("stop"));
}

TEST_F(StageLauncherTest, a_slice_that_ends_before_the_groups_is_a_failure) {
  run_all();
  end(1);
  EXPECT_THAT(failures_, ElementsAre("1: it has ended before the groups"));
  EXPECT_THAT(requests_[0], ElementsAre("stop"));
}

TEST_F(StageLauncherTest, a_slice_that_cannot_begin_ends_the_other_one) {
  end(1, {.status = 2});
  EXPECT_THAT(requests_[2], ElementsAre("stop"));
  be_ready(2);
  EXPECT_EQ(processes_.size(), 2U) << "no group starts";
}

TEST_F(StageLauncherTest, a_group_that_cannot_be_started_ends_the_others) {
  cannot_start_ = 3;
  be_ready(1);
  be_ready(2);
  EXPECT_THAT(failures_, ElementsAre("3: cannot be started: no process is left"));
  EXPECT_THAT(log_, Contains("group1 cannot be started: no process is left"));
  EXPECT_THAT(requests_[0], ElementsAre("stop"));
  end(0);
  EXPECT_THAT(requests_[1], ElementsAre("stop"));
}

TEST_F(StageLauncherTest, where_a_group_ends_before_a_slice_has_begun_all_stop) {
  run_all();
  be_ready(1, "running");
  end(0); // slice 1 waits for it, and group 1 for slice 1
  pass(seconds{4});
  EXPECT_THAT(failures_, IsEmpty()) << "its report may be on the way";
  pass(seconds{1});
  EXPECT_THAT(failures_, ElementsAre("2: group0 has ended before this slice could begin"));
  EXPECT_THAT(requests_[3], ElementsAre("stop"));
  EXPECT_THAT(requests_[2], ElementsAre("stop"));
  EXPECT_THAT(requests_[1], IsEmpty());
  end(2);
  end(3);
  EXPECT_THAT(requests_[1], ElementsAre("stop"));
}

TEST_F(StageLauncherTest, a_group_that_ends_when_all_slices_have_begun_stops_nobody) {
  run_all();
  end(0);
  be_ready(1, "running");
  be_ready(2, "running");
  pass(seconds{5});
  EXPECT_THAT(failures_, IsEmpty());
  EXPECT_THAT(requests_[3], IsEmpty());
}

TEST_F(StageLauncherTest, a_slice_that_cannot_be_started_ends_the_one_before) {
  cannot_start_ = 2;
  make_launcher();
  EXPECT_THAT(failures_, ElementsAre("2: cannot be started: no process is left"));
  EXPECT_THAT(requests_[1], ElementsAre("stop"));
  be_ready(1);
  EXPECT_FALSE(processes_.contains(0)) << "no group starts";
}

TEST_F(StageLauncherTest, where_nothing_can_be_started_that_is_the_error) {
  cannot_start_ = 1;
  make_launcher();
  EXPECT_EQ(started_.error().text, "no process is left");
  EXPECT_THAT(failures_, IsEmpty());
}

} // namespace
} // namespace fanin::executive
