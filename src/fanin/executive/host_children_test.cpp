// The launcher's side, with commands that are no ssh.
#include "fanin/executive/host_children.hpp"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fanin/version.hpp"

namespace fanin::executive {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

struct Ended {
  ChildExit exit;
  std::vector<std::string> reports;
  std::vector<std::string> log;
};

// A host whose command is a script of the shell, which is followed by the words of `fanin on-host`.
Ended run_script(const std::string& script, Duration patience = host_patience,
                 void (Child::*at_report)() = nullptr) {
  Ended ended;
  HostList list;
  list.hosts.push_back({{"10.0.0.9"}, {"sh", "-c", script}, "hosts:4"});
  const MonotonicClock clock;
  net::Loop loop(clock);
  HostChildren children(
      loop, list, [&](LogLevel, std::string_view text) { ended.log.emplace_back(text); }, patience);
  std::unique_ptr<Child> child;
  auto started = children.start(0, {"fanin", "run"}, "the text",
                                {.on_report =
                                     [&](const json::Value& report) {
                                       ended.reports.push_back(report.dump());
                                       if (at_report != nullptr) (child.get()->*at_report)();
                                     },
                                 .on_exit =
                                     [&](const ChildExit& exit) {
                                       ended.exit = exit;
                                       loop.stop();
                                     }});
  EXPECT_TRUE(started) << started.error().text;
  if (!started) return ended;
  child = std::move(*started);
  loop.run();
  EXPECT_FALSE(child->alive());
  return ended;
}

const std::string hello = "echo '{\"fanin\":\"" + std::string(version) + "\"}'; ";

TEST(HostChildren, reports_and_the_end_come_from_the_host) {
  const Ended ended = run_script(
      "echo Welcome!; " + hello +
      "read request; echo \"$request\" >&2; echo '{\"report\":\"log\"}'; "
      "echo '{\"exit\":{\"status\":3,\"signal\":0,\"peak_rss_bytes\":5,\"cpu_s\":2.5}}'");
  EXPECT_EQ(ended.exit.text(), "exit status 3");
  EXPECT_EQ(ended.exit.peak_rss_bytes, 5U);
  EXPECT_EQ(ended.exit.cpu_s, 2.5);
  EXPECT_THAT(ended.reports, ElementsAre("{\"report\":\"log\"}"));
  EXPECT_THAT(ended.log, Contains(HasSubstr("\"arguments\":[\"fanin\",\"run\"],\"input\":\"the "
                                            "text\"")));
}

TEST(HostChildren, a_host_that_does_not_answer_is_given_up) {
  const Ended ended = run_script("exec sleep 600", std::chrono::milliseconds{20});
  EXPECT_EQ(ended.exit.text(), "host 10.0.0.9 (hosts:4) does not answer");
}

TEST(HostChildren, what_outlives_the_command_and_goes_on_writing_is_not_waited_for) {
  const Ended ended =
      run_script("yes '{\"report\":\"log\"}' & exec sleep 600", std::chrono::milliseconds{20});
  EXPECT_EQ(ended.exit.text(), "host 10.0.0.9 (hosts:4) does not answer");
  EXPECT_THAT(ended.reports, IsEmpty()) << "it has not said that it is fanin";
}

TEST(HostChildren, why_a_host_cannot_be_reached_is_one_line_with_its_name) {
  EXPECT_EQ(run_script("echo one >&2; echo 'fanin: not found' >&2; exit 127").exit.text(),
            "host 10.0.0.9 (hosts:4): fanin: not found");
  EXPECT_EQ(run_script("exit 255").exit.text(),
            "host 10.0.0.9 (hosts:4): sh ended with status 255");
}

TEST(HostChildren, another_version_and_a_refusal_are_said) {
  EXPECT_THAT(run_script("echo '{\"fanin\":\"9.9\"}'; exec sleep 600").exit.text(),
              HasSubstr("host 10.0.0.9 (hosts:4): has fanin 9.9, and this is fanin "));
  EXPECT_EQ(run_script(hello + "echo '{\"refused\":\"no folder\"}'; exec sleep 600").exit.text(),
            "host 10.0.0.9 (hosts:4): no folder");
}

TEST(HostChildren, a_lost_connection_is_a_death) {
  const Ended ended = run_script(hello + "echo '{\"report\":\"log\"}'; exit 255");
  EXPECT_EQ(ended.exit.text(), "the connection to host 10.0.0.9 (hosts:4) has ended");
  EXPECT_EQ(ended.exit.status, -1);
}

TEST(HostChildren, requests_are_passed_on) {
  const Ended ended = run_script(
      hello + "read request; echo '{\"report\":\"log\"}'; read request; echo \"$request\" >&2; "
              "echo '{\"exit\":{\"status\":-1,\"signal\":9}}'",
      host_patience, &Child::stop);
  EXPECT_EQ(ended.exit.text(), "killed by signal 9 (Killed)");
  EXPECT_THAT(ended.log, ElementsAre("host 10.0.0.9: {\"stop\":true}"));
}

TEST(HostChildren, a_host_that_does_not_kill_is_left) {
  const Ended ended = run_script(hello + "echo '{\"report\":\"log\"}'; exec sleep 600",
                                 host_patience, &Child::kill);
  EXPECT_EQ(ended.exit.text(), "host 10.0.0.9 (hosts:4) does not answer any more");
}

TEST(HostChildren, a_command_that_does_not_exist_is_named) {
  HostList list;
  list.hosts.push_back({{"a"}, {"/no/such/command"}, "hosts:1"});
  const MonotonicClock clock;
  net::Loop loop(clock);
  HostChildren children(loop, list, [](LogLevel, std::string_view) {});
  std::string why;
  const auto child = children.start(0, {"fanin"}, "",
                                    {.on_report = [](const json::Value&) {},
                                     .on_exit =
                                         [&](const ChildExit& exit) {
                                           why = exit.text();
                                           loop.stop();
                                         }});
  ASSERT_TRUE(child) << child.error().text;
  loop.run();
  EXPECT_EQ(why, "host a (hosts:1): /no/such/command: No such file or directory");
}

} // namespace
} // namespace fanin::executive
