// A plug-in for the tests: one fragment of eight bytes of `value`, or a failure that says
// `failure`. Made, it may do something bad: at once, or (`made_path`) only when that path is there,
// which it makes.
#include <signal.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "fanin/executive/plugin.hpp"

namespace {

using namespace fanin;
using namespace fanin::source;

class Constant final : public Source {
public:
  Constant(std::byte value, std::string failure) : failure_(std::move(failure)) {
    payload_.fill(value);
  }
  Result<> start(EventNumber, Time) override { return {}; }
  ReadResult read(FragmentQueue& queue, Time) override {
    if (!failure_.empty()) {
      return {.state = ReadState::failed, .error = {ErrorKind::internal, failure_}};
    }
    if (queue.write(0, payload_) == WriteOutcome::full) return {};
    return {.state = ReadState::finished};
  }

private:
  std::array<std::byte, 8> payload_{};
  std::string failure_;
};

enum class Made : std::uint8_t { works, aborts, faults, overflows, exits, leaves, hangs };

// Until there is no stack left.
std::size_t overflow(std::size_t depth) {
  const volatile std::size_t kept = depth;
  return depth == std::numeric_limits<std::size_t>::max() ? 0 : overflow(depth + 1) + kept;
}

void misbehave(Made made, const std::string& path) {
  const bool was_there = path.empty() || std::filesystem::exists(path);
  if (!was_there) std::ofstream(path).put('x');
  if (made == Made::hangs) {
    while (true) ::pause();
  }
  if (!was_there) return;
  if (made == Made::aborts) std::abort();
  if (made == Made::faults) std::raise(SIGSEGV);
  if (made == Made::overflows) std::exit(static_cast<int>(overflow(0)));
  if (made == Made::exits) std::exit(0);
  if (made == Made::leaves) ::_exit(0);
}

Result<std::unique_ptr<Source>> make_constant(const SourceSettings& settings) {
  SettingsReader reader(settings);
  const auto value = static_cast<std::byte>(reader.integer("value", 0, 0, 255));
  std::string failure = reader.text("failure");
  const auto made = static_cast<Made>(reader.choice(
      "made", {"works", "aborts", "faults", "overflows", "exits", "leaves", "hangs"}));
  const std::string path = reader.text("made_path");
  if (auto good = reader.finish(); !good) return std::unexpected(good.error());
  misbehave(made, path);
  if (settings.log)
    settings.log(LogLevel::info, fmt::format("made with {}", static_cast<int>(value)));
  return std::make_unique<Constant>(value, std::move(failure));
}

} // namespace

FANIN_PLUGIN_ABI

extern "C" void fanin_register(fanin::executive::PluginRegistry& registry) {
  registry.add_source("test_constant", make_constant);
}
