#include "fanin/executive/process.hpp"

#include <linux/pkt_sched.h>
#include <sys/socket.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unistd.h>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fanin/base/descriptor.hpp"
#include "fanin/executive/plugins.hpp"
#include "fanin/executive/run_view.hpp"
#include "fanin/executive/this_host.hpp"
#include "fanin/net/address.hpp"
#include "fanin/net/tcp_socket.hpp"
#include "fanin/source/testing/recorded.hpp"
#include "fanin/source/testing/sender.hpp"

namespace fanin::executive {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;

constexpr const char* small = R"(
[run]
output = "discard"
events = 2000
[network]
url = "inproc://"
[trigger]
rate = "20kHz"
[buffers]
readout = "8MiB"
builder = "32MiB"
huge_pages = "off"
[source]
type = "emulator"
size = "500B"
fragment_max = "16KiB"
[[readout]]
count = 2
source = [{ id = 1, count = 2 }]
[[builder]]
count = 2
)";

// A whole run in this process; what its nodes reported.
struct Ran {
  Result<> outcome;
  json::Value result;
  std::vector<std::string> log;
  bool succeeded = false;
};

Ran run_all(const std::string& text, const std::vector<std::string>& overrides = {},
            const std::function<void()>& before = {}, const std::function<void()>& meanwhile = {}) {
  Ran ran;
  const auto configuration = config::parse(text, "test.toml", overrides);
  if (!configuration) {
    ran.outcome = std::unexpected(configuration.error());
    return ran;
  }
  const auto plugins = Plugins::load(*configuration);
  if (!plugins) {
    ran.outcome = std::unexpected(plugins.error());
    return ran;
  }
  const auto plans = plan_memory(*configuration, plugins->transports);
  if (!plans) {
    ran.outcome = std::unexpected(plans.error());
    return ran;
  }
  RunView view(*configuration, *plans);
  ProcessOptions options;
  for (std::size_t i = 0; i < configuration->nodes.size(); ++i) options.nodes.push_back(i);
  options.report = [&](const json::Value& report) {
    view.on_report(report);
    if (meanwhile) meanwhile();
    if (report.at("report").text() == "log") {
      ran.log.push_back(report.at("node").text() + ": " + report.at("text").text());
    }
  };
  auto process = Process::make(*configuration, *plugins, std::move(options));
  if (!process) {
    ran.outcome = std::unexpected(process.error());
    return ran;
  }
  if (before) before();
  ran.outcome = (*process)->run();
  ran.succeeded = (*process)->succeeded();
  ran.result = view.result();
  return ran;
}

TEST(Process, runs_a_whole_event_builder_on_one_loop) {
  for (const char* setting :
       {"network.url=inproc://", "network.url=tcp://127.0.0.1", "network.url=tcp://[::1]",
        "network.protocol=pull", "network.wait=poll"}) {
    SCOPED_TRACE(setting);
    const Ran ran = run_all(small, {setting});
    ASSERT_TRUE(ran.outcome) << ran.outcome.error().text;
    EXPECT_TRUE(ran.succeeded);
    EXPECT_TRUE(succeeded(ran.result)) << ran.result.dump();
    EXPECT_EQ(ran.result.at("events").at("built").natural(), 2000U);
    EXPECT_EQ(ran.result.at("events").at("incomplete").natural(), 0U);
    EXPECT_EQ(ran.result.at("fragments").at("built").natural(), 8000U);
    EXPECT_EQ(ran.result.at("nodes").object().size(), 5U);
  }
}

std::size_t urgent_sockets() {
  std::size_t found = 0;
  for (int socket = 0; socket < 1024; ++socket) {
    int priority = 0;
    socklen_t size = sizeof priority;
    if (getsockopt(socket, SOL_SOCKET, SO_PRIORITY, &priority, &size) == 0 &&
        priority == TC_PRIO_INTERACTIVE)
      ++found;
  }
  return found;
}

// The event manager reports its progress twice a second: a run of one second has such a report.
TEST(Process, control_and_grants_leave_the_host_before_data) {
  std::size_t most = 0;
  const Ran ran = run_all(small, {"network.url=tcp://127.0.0.1", "trigger.rate=2kHz"}, {},
                          [&most] { most = std::max(most, urgent_sockets()); });
  EXPECT_TRUE(succeeded(ran.result)) << ran.result.dump();
  // Both ends of the control of four units, and of four data connections the builder unit's.
  EXPECT_EQ(most, 12U);
}

// Asks for what a test wants, between two turns.
class Asking final : public net::Service {
public:
  Asking(net::Loop& loop, std::optional<Request>& wanted, std::function<void(Request)> on_request)
      : loop_(loop), wanted_(wanted), on_request_(std::move(on_request)) {
    loop_.add(*this);
  }
  ~Asking() override { loop_.remove(*this); }
  bool poll() override {
    const auto request = std::exchange(wanted_, std::nullopt);
    if (request) on_request_(*request);
    return request.has_value();
  }

private:
  net::Loop& loop_;
  std::optional<Request>& wanted_;
  std::function<void(Request)> on_request_;
};

// A run of one process that is started when all are there, and stopped when each node has reported
// its usage twice since then; the reports of each kind. The first summary of a run has no event.
std::map<std::string, std::vector<json::Value>> reports_of(bool controlled) {
  auto configuration =
      config::parse(small, "test.toml", {"run.events=1000000000", "monitoring.every=1000"}).value();
  configuration.run.controlled = controlled;
  const auto plugins = Plugins::load(configuration).value();
  std::map<std::string, std::vector<json::Value>> reports;
  std::optional<Request> wanted;
  std::size_t usages = 0; // before the start
  const auto on_report = [&](const json::Value& report) {
    const std::string kind = report.at("report").text();
    reports[kind].push_back(report);
    if (kind != "progress") return;
    const bool all = report.at("readouts").natural() + report.at("builders").natural() == 4;
    if (report.at("held").boolean() && all) {
      wanted = Request::start;
      usages = reports["usage"].size();
    } else if (report.at("state").text() == "running" && report.at("events").natural() != 0 &&
               (!controlled || reports["usage"].size() >= usages + 10)) {
      wanted = Request::stop;
    }
  };
  ProcessOptions options{.nodes = {0, 1, 2, 3, 4},
                         .report = on_report,
                         .requests = [&](net::Loop& loop, std::function<void(Request)> on_request) {
                           return std::make_unique<Asking>(loop, wanted, std::move(on_request));
                         }};
  auto process = Process::make(configuration, plugins, std::move(options)).value();
  EXPECT_TRUE(process->run());
  EXPECT_TRUE(process->succeeded());
  return reports;
}

TEST(Process, a_run_that_run_control_shows_reports_what_it_has_done_and_uses) {
  const auto reports = reports_of(true);
  const auto& summaries = reports.at("summary");
  const json::Value& result = reports.at("result").front();
  const auto here = [](const json::Value& summary) {
    return std::ranges::count_if(summary.at("nodes").object(), [](const auto& node) {
      return node.second.at("alive").boolean();
    });
  };
  EXPECT_EQ(here(summaries.front()), 4);
  EXPECT_EQ(summaries.front().at("time_s").real(), 0);
  EXPECT_EQ(summaries.front().at("events").at("built").natural(), 0U);
  const json::Value& last = summaries.back(); // when it was stopped
  EXPECT_GT(last.at("events").at("built").natural(), 0U);
  EXPECT_GT(last.at("time_s").real(), 0);
  for (const char* key : {"events", "fragments", "latency_us", "sources", "nodes"}) {
    for (const auto& [member, value] : result.at(key).object())
      EXPECT_NE(last.at(key).find(member), nullptr) << key << " " << member;
  }
  for (const char* key : {"gaps", "incomplete_events", "files"})
    EXPECT_EQ(last.find(key), nullptr) << key;
  EXPECT_EQ(last.at("sources").at("0x1").at("readout").text(), "ru0");

  std::map<std::string, json::Value> usage;
  for (const auto& report : reports.at("usage")) usage[report.at("node").text()] = report;
  ASSERT_EQ(usage.size(), 5U);
  for (const auto& [node, report] : usage) {
    EXPECT_EQ(report.at("process").text(), "all") << node;
    EXPECT_GT(report.at("cpu_s").real(), 0) << node;
    EXPECT_GT(report.at("rss_bytes").natural(), 1U << 20) << node;
    EXPECT_EQ(report.find("sources") != nullptr, node.starts_with("ru")) << node;
    EXPECT_EQ(report.find("monitoring_url") != nullptr, node.starts_with("bu")) << node;
  }
  ASSERT_EQ(usage["ru1"].at("sources").object().size(), 2U);
  for (const auto& [name, source] : usage["ru1"].at("sources").object()) {
    EXPECT_GT(source.at("read").natural(), 0U) << name;
    EXPECT_EQ(source.at("bytes").natural(), 500 * source.at("read").natural()) << name;
  }
  EXPECT_THAT(usage["bu0"].at("monitoring_url").text(), MatchesRegex("tcp://127.0.0.1:[1-9].*"));
}

TEST(Process, another_run_reports_neither) {
  const auto reports = reports_of(false);
  EXPECT_FALSE(reports.contains("summary"));
  EXPECT_FALSE(reports.contains("usage"));
}

TEST(Process, a_signal_that_comes_before_the_run_ends_it_with_a_result) {
  const auto configuration = config::parse(small, "test.toml", {"network.url=inproc://"});
  ASSERT_TRUE(configuration);
  const auto plugins = Plugins::load(*configuration);
  ASSERT_TRUE(plugins);
  ProcessOptions options;
  for (std::size_t i = 0; i < configuration->nodes.size(); ++i) options.nodes.push_back(i);
  const auto plans = plan_memory(*configuration, plugins->transports);
  ASSERT_TRUE(plans);
  RunView view(*configuration, *plans);
  options.report = [&view](const json::Value& report) { view.on_report(report); };
  auto process = Process::make(*configuration, *plugins, std::move(options));
  ASSERT_TRUE(process) << process.error().text;
  ASSERT_EQ(::kill(getpid(), SIGTERM), 0); // while the pools were made, for instance
  EXPECT_TRUE((*process)->run());
  EXPECT_TRUE(view.has_result());
}

TEST(Process, control_and_data_may_go_over_networks_of_their_own) {
  const Ran ran = run_all(
      small, {"network.control=tcp://127.0.0.1", "network.data=inproc://", "builder.0.count=1"});
  ASSERT_TRUE(ran.outcome) << ran.outcome.error().text;
  EXPECT_TRUE(succeeded(ran.result)) << ran.result.dump();
}

TEST(Process, a_builder_unit_may_have_rails_of_different_kinds) {
  const std::string text =
      std::string(small) + R"(url = ["tcp://127.0.0.1", "inproc://", "tcp://127.0.0.2"])";
  const Ran ran = run_all(text, {"network.control=inproc://"});
  ASSERT_TRUE(ran.outcome) << ran.outcome.error().text;
  EXPECT_TRUE(succeeded(ran.result)) << ran.result.dump();
}

TEST(Process, a_network_with_delays_and_refusals_builds_the_same_and_is_traced) {
  const std::string url = "trace+fault+inproc://?seed=5&delay=200us&backpressure=0.1";
  const Ran ran = run_all(small, {"network.url=" + url});
  ASSERT_TRUE(ran.outcome) << ran.outcome.error().text;
  EXPECT_TRUE(succeeded(ran.result)) << ran.result.dump();
  EXPECT_EQ(ran.result.at("events").at("built").natural(), 2000U);
  EXPECT_THAT(ran.log, Contains(HasSubstr("trace: {\"messages_sent\":")));
}

TEST(Process, an_address_in_use_is_an_error) {
  const Ran ran = run_all(small, {"network.control=tcp://203.0.113.1"}); // not of any host
  ASSERT_FALSE(ran.outcome);
  EXPECT_THAT(ran.outcome.error().text, HasSubstr("203.0.113.1"));
}

TEST(Process, a_builder_unit_that_cannot_make_its_file_ends_the_run) {
  const source::testing::TemporaryFolder folder;
  const std::string out = folder.file("out");
  const std::string file = out + "/run000001_bu1_i1_0001.h5";
  const auto make_file = [&] { // when the number is taken
    if (std::filesystem::exists(out + "/run000001.manifest.json"))
      std::ofstream{file, std::ios::app};
  };
  const Ran ran = run_all(small, {"run.output=" + out, "run.events=1000000000"}, {}, make_file);
  ASSERT_TRUE(ran.outcome) << ran.outcome.error().text;
  EXPECT_FALSE(ran.succeeded);
  EXPECT_FALSE(succeeded(ran.result));
  EXPECT_THAT(ran.result.at("error").text(), AllOf(HasSubstr("bu1: "), HasSubstr(file)));
  EXPECT_THAT(ran.log, Contains(AllOf(HasSubstr("'bu1' is gone"), HasSubstr(file))));
}

// Nobody could start them again. It would wait for ever.
TEST(Process, a_run_whose_builder_units_have_all_failed_ends) {
  const source::testing::TemporaryFolder folder;
  const std::string text = std::string(small) +
                           "[storage]\nsink = \"test_sink\"\naction = \"throws\"\nat = 100\n" +
                           "[[plugin]]\npath = \"" FANIN_TEST_PLUGIN_SINK "\"\n";
  const Ran ran = run_all(text, {"run.output=" + folder.file("out"), "run.events=1000000000"});
  ASSERT_TRUE(ran.outcome) << ran.outcome.error().text;
  EXPECT_FALSE(succeeded(ran.result));
  EXPECT_THAT(ran.result.at("error").text(),
              AllOf(HasSubstr("all builder units have failed: "), HasSubstr("as it was told")));
  EXPECT_TRUE(ran.result.at("balanced").boolean()) << ran.result.dump();
}

TEST(Process, a_readout_unit_that_has_failed_lets_go_of_its_senders) {
  constexpr const char* waiting = R"(
[run]
output = "discard"
[network]
url = "inproc://"
[buffers]
huge_pages = "off"
[[readout]]
source = [{ id = 1, type = "receive", listen = "tcp://127.0.0.1:0", wait_for_sender = true }]
[[builder]]
)";
  const auto configuration = config::parse(waiting, "test.toml");
  ASSERT_TRUE(configuration) << configuration.error().text;
  const auto plugins = Plugins::load(*configuration);
  ASSERT_TRUE(plugins);
  const auto connect = [](const std::string& url) {
    const net::Address to = net::resolve(net::Url::parse(url).value(), false)->front();
    Descriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (::connect(socket.get(), to.get(), to.length) != 0) socket.reset();
    return socket;
  };
  std::string url;
  Descriptor sender;
  std::vector<std::string> log;
  Process* running = nullptr;
  const auto on_report = [&](const json::Value& report) {
    if (report.at("report").text() == "log") log.push_back(report.at("text").text());
    if (report.at("report").text() != "senders") return;
    url = report.at("urls").list().front().text();
    sender = connect(url);
    running->stop_now("as it was told");
  };
  auto process = Process::make(*configuration, *plugins, {.nodes = {0, 1}, .report = on_report});
  ASSERT_TRUE(process) << process.error().text;
  running = process->get();
  ASSERT_TRUE((*process)->run());
  EXPECT_FALSE((*process)->succeeded());
  ASSERT_TRUE(sender);
  char byte = 0;
  EXPECT_GE(::recv(sender.get(), &byte, 1, MSG_DONTWAIT), 0) << "it would wait";
  EXPECT_FALSE(connect(url));
  EXPECT_THAT(log, Contains(HasSubstr("no longer listens at " + url)));
}

TEST(Process, a_sender_that_comes_before_all_readout_units_have_started_waits_for_its_own) {
  net::Address address = net::addresses_of_number("127.0.0.1")->front();
  { // a free port
    const Descriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    ASSERT_EQ(::bind(socket.get(), address.get(), address.length), 0);
    address = net::local_address(socket.get());
  }
  const std::string two = fmt::format(R"(
[run]
output = "discard"
[network]
url = "inproc://"
[buffers]
huge_pages = "off"
[source]
type = "receive"
listen = "tcp://127.0.0.1:{}"
wait_for_sender = true
[[readout]]
source = [{{ id = 1 }}]
[[readout]]
source = [{{ id = 2 }}]
[[builder]]
)",
                                      address.port());
  const auto configuration = config::parse(two, "test.toml");
  ASSERT_TRUE(configuration) << configuration.error().text;
  const auto plugins = Plugins::load(*configuration);
  ASSERT_TRUE(plugins);
  Descriptor sender; // to the second readout unit, as soon as somebody listens
  source::ReceiveReply answer{.status = source::ReceiveStatus::ended};
  Process* running = nullptr;
  const auto on_report = [&](const json::Value& report) {
    if (report.at("report").text() != "log") return;
    if (!sender && report.at("text").text().contains("waits for fragments")) {
      sender = Descriptor(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
      ASSERT_EQ(::connect(sender.get(), address.get(), address.length), 0);
      const auto preface = source::testing::SenderBytes(2).preface(7).bytes();
      ASSERT_EQ(::send(sender.get(), preface.data(), preface.size(), 0), ssize_t{32});
    } else if (sender && answer.status == source::ReceiveStatus::ended &&
               ::recv(sender.get(), &answer, sizeof answer, MSG_DONTWAIT) > 0) {
      running->stop_now("as it was told");
    }
  };
  auto process = Process::make(*configuration, *plugins, {.nodes = {0, 1, 2}, .report = on_report});
  ASSERT_TRUE(process) << process.error().text;
  running = process->get();
  (void)(*process)->run();
  EXPECT_EQ(answer.status, source::ReceiveStatus::send);
}

TEST(Process, nodes_that_were_stopped_before_they_reached_the_event_manager_end_in_order) {
  const auto configuration =
      config::parse(small, "test.toml", {"network.control=tcp://127.0.0.1:1"});
  ASSERT_TRUE(configuration) << configuration.error().text;
  const auto plugins = Plugins::load(*configuration);
  ASSERT_TRUE(plugins);
  std::vector<json::Value> ends;
  ProcessOptions options{.nodes = {1, 3}, // ru0, bu0
                         .report =
                             [&](const json::Value& report) {
                               if (report.at("report").text() == "end") ends.push_back(report);
                             },
                         .attended = false};
  auto process = Process::make(*configuration, *plugins, std::move(options));
  ASSERT_TRUE(process) << process.error().text;
  (*process)->stop();
  ASSERT_TRUE((*process)->run());
  EXPECT_TRUE((*process)->succeeded());
  ASSERT_EQ(ends.size(), 2U);
  for (const json::Value& end : ends) EXPECT_TRUE(end.at("ok").boolean()) << end.dump();
}

TEST(Process, a_plug_in_brings_a_transport_and_an_application) {
  const std::string text = std::string(small) +
                           "[[plugin]]\npath = \"" FANIN_TEST_PLUGIN_SAME
                           "\"\n[[application]]\nname = \"tally\"\ntype = \"counter\"\n"
                           "greeting = \"hello\"\n";
  const Ran ran = run_all(text, {"network.url=same+inproc://here"});
  ASSERT_TRUE(ran.outcome) << ran.outcome.error().text;
  EXPECT_TRUE(succeeded(ran.result)) << ran.result.dump();
  EXPECT_THAT(ran.log, Contains("tally: hello"));
  EXPECT_THAT(ran.log, Contains("tally: some turns"));
  EXPECT_EQ(ran.result.at("nodes").at("tally").at("role").text(), "application");
}

TEST(Process, what_is_wrong_with_a_plug_in_names_the_line) {
  const std::string plugin =
      std::string(small) + "[[plugin]]\npath = \"" FANIN_TEST_PLUGIN_SAME "\"\n";
  const std::map<std::string, std::string> wrong{
      {plugin + "[[application]]\ntype = \"nothing\"\n",
       "test.toml:25: application.0.type: no plug-in has an application \"nothing\""},
      {plugin + "[[application]]\ntype = \"counter\"\n",
       "test.toml:24: application.0.greeting: is missing"},
      {plugin + "[[plugin]]\npath = \"" FANIN_TEST_PLUGIN_SAME "\"\n",
       "test.toml:25: plugin.1.path: plug-in " FANIN_TEST_PLUGIN_SAME
       ": there is a transport for \"same+inproc\" already"},
  };
  for (const auto& [text, error] : wrong) {
    const Ran ran = run_all(text);
    ASSERT_FALSE(ran.outcome) << error;
    EXPECT_EQ(ran.outcome.error().text, error);
  }
}

TEST(Process, a_source_of_a_plug_in_is_named_in_what_it_says) {
  const Ran ran =
      run_all("[run]\noutput = \"discard\"\n[network]\nurl = \"inproc://\"\n"
              "[buffers]\nreadout = \"8MiB\"\nbuilder = \"32MiB\"\nhuge_pages = \"off\"\n"
              "[[plugin]]\npath = \"" FANIN_TEST_PLUGIN_CONSTANT "\"\n"
              "[[readout]]\nsource = [{ id = 0x7c0000, type = \"test_constant\" }]\n"
              "[[builder]]\n");
  ASSERT_TRUE(ran.outcome) << ran.outcome.error().text;
  EXPECT_THAT(ran.log, Contains("ru0: source 0x7c0000: made with 0"));
}

TEST(Process, a_run_whose_number_another_one_has_taken_gets_the_next) {
  std::string folder = ::testing::TempDir() + "/fanin_XXXXXX";
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  for (const bool free : {true, false}) {
    const std::string number = free ? "run.events=100" : "run.number=7";
    const Ran ran = run_all(small, {"run.output=" + folder, "run.events=100", number}, [&] {
      std::ofstream(folder + (free ? "/run000001.manifest.json" : "/run000007.manifest.json"));
    });
    EXPECT_EQ(ran.outcome.has_value(), free);
    if (free) {
      ASSERT_TRUE(ran.outcome) << ran.outcome.error().text;
      EXPECT_TRUE(succeeded(ran.result)) << ran.result.dump();
      EXPECT_EQ(ran.result.at("run").natural(), 2U);
      EXPECT_TRUE(std::filesystem::exists(folder + "/run000002_bu0_i1_0001.h5"));
    } else {
      EXPECT_THAT(ran.outcome.error().text, HasSubstr("run number 7 is not free"));
    }
  }
  std::filesystem::remove_all(folder);
}

TEST(ThisHost, refuses_addresses_that_a_run_would_refuse) {
  const auto refusal = [](std::string_view setting, const std::vector<std::size_t>& nodes) {
    const auto configuration = config::parse(small, "test.toml", {std::string(setting)});
    EXPECT_TRUE(configuration) << configuration.error().text;
    const auto good = check_here(*configuration, nodes);
    return good ? "" : good.error().text;
  };
  const std::vector<std::size_t> all{0, 1, 2, 3, 4};
  EXPECT_EQ(refusal("network.url=fault+inproc://?delay=1ms", all), "");
  EXPECT_EQ(refusal("network.url=tcp://127.0.0.1?congestion=reno", all), "");
  EXPECT_EQ(refusal("network.url=tcp://127.0.0.1?foo=1", all),
            "--set:1: network.url: tcp://127.0.0.1?foo=1: option \"foo\" is not known; tcp:// has "
            "congestion and dscp");
  EXPECT_THAT(refusal("network.data=trace+tcp://127.0.0.1?congestion=foo", all),
              HasSubstr("--set:1: network.data: trace+tcp://127.0.0.1?congestion=foo: congestion "
                        "control \"foo\": "));
  EXPECT_THAT(refusal("network.data=fault+tcp://127.0.0.1?loss=2", all),
              HasSubstr("option \"loss\": \"2\" is not a probability"));
  EXPECT_THAT(refusal("network.url=ofi+nobody://127.0.0.1", all),
              HasSubstr("--set:1: network.url: ofi+nobody"));
  // What is possible on the hosts of others is not known here.
  EXPECT_EQ(refusal("network.data=tcp://127.0.0.1?congestion=foo", {0, 1, 2}), "");
  EXPECT_THAT(refusal("network.control=tcp://127.0.0.1?congestion=foo", {1}), HasSubstr("foo"));
  EXPECT_EQ(refusal("network.url=ofi+nobody://127.0.0.1?foo=1", {}), "");
  EXPECT_THAT(refusal("network.url=pigeon://127.0.0.1", {}), HasSubstr("no transport for pigeon"));
}

TEST(ThisHost, knows_its_own_names) {
  EXPECT_TRUE(is_here(""));
  EXPECT_TRUE(is_here("localhost"));
  EXPECT_TRUE(is_here("127.0.0.1"));
  EXPECT_TRUE(is_here("::1"));
  EXPECT_FALSE(is_here("no-such-host.invalid"));
}

} // namespace
} // namespace fanin::executive
