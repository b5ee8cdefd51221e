// A filter plug-in: accepts an event if the highest sample of one source is above a threshold.
// Replace highest_sample() by your own selection.
//
//   type = "threshold"
//   source = 0x400         # the source that decides
//   threshold = 20000      # of its samples, 16 bits each

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>

#include <fanin/executive/plugin.hpp>

namespace {

using namespace fanin;
using namespace fanin::builder;

struct ThresholdOptions {
  SourceId source = 0x400;
  std::uint16_t threshold = 20000;
  std::size_t physics = 0; // streams, by number
  std::size_t monitoring = 0;
};

// The bytes of a fragment are as the front end has sent them; this one sends 16-bit samples.
std::uint16_t highest_sample(std::span<const std::byte> payload) {
  std::uint16_t highest = 0;
  for (std::size_t at = 0; at + sizeof highest <= payload.size(); at += sizeof highest) {
    std::uint16_t sample = 0;
    std::memcpy(&sample, payload.data() + at, sizeof sample);
    highest = std::max(highest, sample);
  }
  return highest;
}

class ThresholdFilter final : public Filter {
public:
  explicit ThresholdFilter(const ThresholdOptions& options) : options_(options) {}

  // Called for each event. Without accept() it is rejected.
  void decide(const FilterEvent& event, Decision& decision) override {
    decision.accept(options_.monitoring); // all events; its prescale keeps one in 100
    const FilterFragment* const pulse = event.find(options_.source);
    if (pulse == nullptr) return; // the source has nothing in this event
    const std::uint16_t highest = highest_sample(pulse->payload);
    if (highest > options_.threshold) decision.accept(options_.physics);
    decision.set_result(std::as_bytes(std::span{&highest, 1})); // is stored with the event
  }

private:
  ThresholdOptions options_;
};

// Turns the keys of the configuration into a filter. A wrong or unknown key, or a source that is
// not there, becomes an error that names file, line and key.
Result<std::unique_ptr<Filter>> make_threshold_filter(const FilterSettings& settings) {
  source::SettingsReader reader(settings.settings);
  ThresholdOptions options;
  options.source = settings.source(reader, "source", 0x400);
  options.threshold = static_cast<std::uint16_t>(reader.integer("threshold", 20000, 0, 65535));
  if (auto good = reader.finish(); !good) return std::unexpected(good.error());
  const auto physics = settings.stream("physics");
  if (!physics) return std::unexpected(physics.error());
  const auto monitoring = settings.stream("monitoring");
  if (!monitoring) return std::unexpected(monitoring.error());
  options.physics = *physics;
  options.monitoring = *monitoring;
  return std::make_unique<ThresholdFilter>(options);
}

} // namespace

FANIN_PLUGIN_ABI

extern "C" void fanin_register(fanin::executive::PluginRegistry& registry) {
  registry.add_filter("threshold", make_threshold_filter);
}
