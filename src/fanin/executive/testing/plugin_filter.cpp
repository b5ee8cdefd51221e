// A filter for the tests. It accepts every `every`-th event into the streams `into`, with its
// number as the result, and does something bad at event `at`: once, if there is a `once_path` to
// note it; or it waits until there is that path.
#include <signal.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "fanin/executive/plugin.hpp"

namespace {

using namespace fanin;
using namespace fanin::builder;

enum class Action : std::uint8_t { none, throws, hangs, exits, writes, freezes, waits };

struct Options {
  std::uint64_t every = 2;
  std::vector<std::size_t> into;
  Action action = Action::none;
  std::uint64_t at = 0;
  std::uint64_t work_us = 0; // of processor time, for each event
  std::string once_path;
};

class TestFilter final : public Filter {
public:
  explicit TestFilter(Options options) : options_(std::move(options)) {}

  void decide(const FilterEvent& event, Decision& decision) override {
    work();
    if (event.number == options_.at && options_.action == Action::waits) {
      // A FIFO: until somebody has opened it to write.
      (void)std::ifstream(options_.once_path).get();
    } else if (event.number == options_.at && options_.action != Action::none && first_time()) {
      misbehave(event);
    }
    if (event.number % options_.every != 0) return;
    for (const std::size_t stream : options_.into) decision.accept(stream);
    decision.set_result(std::as_bytes(std::span{&event.number, 1}));
  }

private:
  static std::uint64_t processor_us() {
    timespec used{};
    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
    return static_cast<std::uint64_t>(used.tv_sec) * 1'000'000 +
           static_cast<std::uint64_t>(used.tv_nsec) / 1000;
  }
  void work() const {
    if (options_.work_us == 0) return;
    const std::uint64_t end = processor_us() + options_.work_us;
    while (processor_us() < end) {
    }
  }
  [[nodiscard]] bool first_time() const {
    if (options_.once_path.empty()) return true;
    return !std::filesystem::exists(options_.once_path) &&
           std::ofstream(options_.once_path).put('x').good();
  }
  void misbehave(const FilterEvent& event) const {
    switch (options_.action) {
    case Action::throws: throw std::runtime_error("as it was told");
    case Action::hangs:
      while (true) ::pause();
    case Action::exits: std::_Exit(3);
    case Action::freezes: ::kill(::getpid(), SIGSTOP); break;
    case Action::writes: {
      const auto payload = event.fragments.front().payload;
      *const_cast<std::byte*>(payload.data()) = std::byte{0};
      break;
    }
    case Action::waits:
    case Action::none: break;
    }
  }

  Options options_;
};

Result<std::unique_ptr<Filter>> make_test_filter(const FilterSettings& settings) {
  source::SettingsReader reader(settings.settings);
  Options options;
  options.every = static_cast<std::uint64_t>(reader.integer("every", 2, 1));
  options.action = static_cast<Action>(
      reader.choice("action", {"none", "throws", "hangs", "exits", "writes", "freezes", "waits"}));
  options.at = static_cast<std::uint64_t>(reader.integer("at", 0, 0));
  options.work_us = static_cast<std::uint64_t>(reader.integer("work_us", 0, 0));
  options.once_path = reader.text("once_path");
  if (reader.has("source")) (void)settings.source(reader, "source", 0);
  const bool aborts = reader.choice("made", {"works", "aborts"}) == 1;
  std::string names = reader.text("into", settings.streams.front().name);
  if (auto good = reader.finish(); !good) return std::unexpected(good.error());
  if (aborts) std::abort();
  for (std::size_t at = 0; at <= names.size();) {
    const std::size_t end = std::min(names.find(' ', at), names.size());
    const auto stream = settings.stream(names.substr(at, end - at));
    if (!stream) return std::unexpected(stream.error());
    options.into.push_back(*stream);
    at = end + 1;
  }
  return std::make_unique<TestFilter>(std::move(options));
}

} // namespace

FANIN_PLUGIN_ABI

extern "C" void fanin_register(fanin::executive::PluginRegistry& registry) {
  registry.add_filter("test_filter", make_test_filter);
}
