// Shaping over real networks: a builder unit of a process of this test, and a readout unit that
// does not keep to what it was granted.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "fanin/builder/rails.hpp"
#include "fanin/builder/testing/fake_node.hpp"
#include "fanin/executive/plugins.hpp"
#include "fanin/executive/process.hpp"

namespace fanin::executive {
namespace {

constexpr std::uint32_t bytes_of_a_carrier = 4096;
constexpr const char* shaped_by_two = R"(
[run]
output = "discard"
[trigger]
rate = "100Hz"
[event]
batch_events = 64
[buffers]
readout = "8MiB"
builder = "32MiB"
huge_pages = "off"
[shaping]
policy = "linear-shift"
carrier = "4KiB"
window = "16KiB"
[[readout]]
count = 2
source = [{ id = 1, type = "emulator", size = "100B", fragment_max = "16KiB" }]
[[builder]]
)";

// Plays readout unit 1 towards a builder unit on the same loop: joins the run, waits for its grant,
// and sends more.
class Greedy final : public net::Service {
public:
  Greedy(Process& process, net::Transport& transport, std::uint64_t digest, std::string manager)
      : process_(process),
        digest_(digest),
        control_(transport, {.huge_pages = memory::HugePages::off, .shared = true}),
        data_(transport, {.huge_pages = memory::HugePages::off, .shared = true}) {
    control_.connect(manager);
    process_.loop().add(*this);
  }
  ~Greedy() override { process_.loop().remove(*this); }

  bool poll() override {
    switch (step_) {
    case Step::join: return join();
    case Step::connect: return connect();
    case Step::greet: return greet();
    case Step::exceed: return exceed();
    case Step::wait: return wait();
    case Step::done: return false;
    }
    return false;
  }
  [[nodiscard]] std::uint64_t granted() const { return granted_; }

private:
  enum class Step : std::uint8_t { join, connect, greet, exceed, wait, done };
  bool go_on(Step step) {
    step_ = step;
    return true;
  }
  [[nodiscard]] wire::Hello hello(wire::Role role) const {
    wire::Hello hello;
    hello.role = role;
    hello.node = 1;
    hello.system_digest = digest_;
    hello.capacity = hello.metadata = 1U << 20;
    hello.session = 7;
    return hello;
  }
  bool join() {
    if (!control_.reached()) return false;
    control_.say_hello(hello(wire::Role::readout_unit), "ru1\n");
    return go_on(Step::connect);
  }
  bool connect() {
    if (!control_.heard(wire::MessageType::builder_up)) return false;
    const auto rails = builder::parse_rails(control_.text_after<wire::BuilderUp>());
    data_.connect(rails.value().front().text());
    return go_on(Step::greet);
  }
  bool greet() {
    if (!data_.reached()) return false;
    const auto welcome = control_.all<wire::Welcome>().front();
    wire::Hello data = hello(wire::Role::data);
    data.run = block_.run = welcome.run;
    data.incarnation = block_.readout_incarnation = welcome.incarnation;
    data.peer_incarnation = block_.builder_incarnation =
        control_.all<wire::BuilderUp>().front().incarnation;
    data_.say_hello(data, "");
    return go_on(Step::exceed);
  }
  // All in one turn of the builder unit's loop, so that it cannot grant more meanwhile.
  bool exceed() {
    if (!data_.heard(wire::MessageType::grant)) return false;
    granted_ = data_.all<wire::Grant>().back().bytes;
    block_.batch_events = 64;
    block_.source = source_of_ru1;
    block_.readout_unit = 1;
    block_.entries = 1;
    block_.payload_size = bytes_of_a_carrier - sizeof block_ - sizeof(wire::FragmentEntry);
    for (std::uint64_t sent = 0; sent <= granted_; sent += bytes_of_a_carrier) {
      data_.send_block(block_, {{block_.payload_size, 0}});
      ++block_.first_event;
    }
    return go_on(Step::wait);
  }
  bool wait() {
    if (!data_.closed()) return false;
    process_.stop_now("the test is done");
    return go_on(Step::done);
  }

  static constexpr SourceId source_of_ru1 = 2;
  Process& process_;
  std::uint64_t digest_;
  builder::testing::FakeNode control_;
  builder::testing::FakeNode data_;
  Step step_ = Step::join;
  wire::DataBlockHeader block_;
  std::uint64_t granted_ = 0;
};

void expect_cut_off(const std::string& url) {
  SCOPED_TRACE(url);
  const auto configuration = config::parse(shaped_by_two, "test.toml", {"network.url=" + url});
  ASSERT_TRUE(configuration) << configuration.error().text;
  const auto plugins = Plugins::load(*configuration);
  ASSERT_TRUE(plugins);
  std::vector<std::string> log;
  std::string manager;
  ProcessOptions options;
  options.nodes = {0, 1, 3}; // without ru1
  options.report = [&](const json::Value& report) {
    if (report.at("report").text() == "listening") manager = report.at("url").text();
    if (report.at("report").text() == "log") log.push_back(report.at("text").text());
  };
  auto process = Process::make(*configuration, *plugins, std::move(options));
  ASSERT_TRUE(process) << process.error().text;
  net::Loop& loop = (*process)->loop();
  auto transport =
      plugins->transports.find(url)(loop, [](LogLevel /*level*/, std::string_view /*text*/) {});
  ASSERT_TRUE(transport);
  loop.add(**transport);
  std::unique_ptr<Greedy> greedy;
  net::Timer begin([&] {
    greedy =
        std::make_unique<Greedy>(**process, **transport, configuration->system.digest(), manager);
  });
  begin.start(loop, loop.now()); // in its first turn the process listens
  (void)(*process)->run();
  ASSERT_TRUE(greedy);
  EXPECT_GE(greedy->granted(), bytes_of_a_carrier);
  EXPECT_TRUE(std::ranges::any_of(log, [](const std::string& line) {
    return line.find("more data than it was granted") != std::string::npos;
  })) << log.back();
  greedy.reset();
  loop.remove(**transport);
}

TEST(ShapedProcess, a_readout_unit_that_sends_more_than_it_was_granted_is_cut_off) {
  for (const char* const url : {"tcp", "shm"}) expect_cut_off(url);
}

} // namespace
} // namespace fanin::executive
