// A plug-in for the tests: one fragment of eight bytes of `value`.
#include <array>

#include <fmt/format.h>

#include "fanin/executive/plugin.hpp"

namespace {

using namespace fanin;
using namespace fanin::source;

class Constant final : public Source {
public:
  explicit Constant(std::byte value) { payload_.fill(value); }
  Result<> start(EventNumber, Time) override { return {}; }
  ReadResult read(FragmentQueue& queue, Time) override {
    if (queue.write(0, payload_) == WriteOutcome::full) return {};
    return {.state = ReadState::finished};
  }

private:
  std::array<std::byte, 8> payload_{};
};

Result<std::unique_ptr<Source>> make_constant(const SourceSettings& settings) {
  SettingsReader reader(settings);
  const auto value = static_cast<std::byte>(reader.integer("value", 0, 0, 255));
  if (auto good = reader.finish(); !good) return std::unexpected(good.error());
  if (settings.log)
    settings.log(LogLevel::info, fmt::format("made with {}", static_cast<int>(value)));
  return std::make_unique<Constant>(value);
}

} // namespace

FANIN_PLUGIN_ABI

extern "C" void fanin_register(fanin::executive::PluginRegistry& registry) {
  registry.add_source("test_constant", make_constant);
}
