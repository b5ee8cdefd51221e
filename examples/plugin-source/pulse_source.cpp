// A source plug-in: a simulated waveform digitizer. Each event is a record of 16-bit samples with
// noise and, most of the time, a pulse that rises at once and decays. Replace make_waveform() by
// the code that reads your board, and you have a source for it.
//
//   type = "pulse"
//   samples = 1024         # per channel
//   channels = 4
//   rate = "2kHz"          # self-triggered; without it, as fast as events are wanted
//   occupancy = 80         # percent of channels with a pulse

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include <fanin/base/random.hpp>
#include <fanin/executive/plugin.hpp>
#include <fanin/source/pacer.hpp>

namespace {

using namespace fanin;
using namespace fanin::source;

struct PulseOptions {
  SourceId source = 0;
  std::uint64_t seed = 1;
  std::uint32_t samples = 1024;
  std::uint32_t channels = 4;
  double rate_hz = 0;
  std::uint64_t occupancy = 80; // percent
};

class PulseSource final : public Source {
public:
  explicit PulseSource(const PulseOptions& options)
      : options_(options),
        pacer_(options.rate_hz),
        waveform_(std::size_t{options.channels} * options.samples) {}

  // A run begins, or the readout unit joins one that is under way at `first_event`.
  Result<> start(EventNumber first_event, Time now) override {
    next_ = first_event;
    pacer_.start(now);
    made_ = false;
    return {};
  }

  // Called on the readout unit's loop; it must not wait. The rest is done at the next call.
  ReadResult read(FragmentQueue& queue, Time now) override {
    pacer_.wait_for_run(queue.numbered(), now);
    for (int i = 0; i < events_per_read; ++i) {
      if (!pacer_.due(next_, now)) {
        return {.state = ReadState::waiting, .wake = pacer_.wake(next_, now)};
      }
      if (!made_) make_waveform();
      made_ = true;
      // `full` is backpressure, or no trigger yet: keep the fragment and offer it again.
      // `rejected`: it was dropped and counted; go on with the next one.
      if (queue.write(next_, std::as_bytes(std::span(waveform_))) == WriteOutcome::full) return {};
      made_ = false;
      ++next_;
    }
    return {.state = ReadState::more};
  }

  // Without a rate, samples are made when they are wanted.
  bool on_demand() const override { return options_.rate_hz <= 0; }

private:
  static constexpr int events_per_read = 32; // bounds a call

  void make_waveform() {
    // The same event gives the same samples in every run of the same seed.
    Random random(options_.seed ^ (next_ * 0x9e3779b97f4a7c15U) ^ options_.source);
    for (std::uint32_t channel = 0; channel < options_.channels; ++channel) {
      const std::span samples =
          std::span(waveform_).subspan(std::size_t{channel} * options_.samples, options_.samples);
      for (auto& sample : samples) sample = static_cast<std::uint16_t>(200 + random.below(8));
      if (!random.chance(options_.occupancy, 100)) continue;
      const std::size_t begin = random.below(options_.samples);
      std::uint64_t height = 100 + random.below(3000);
      for (std::size_t i = begin; i < samples.size() && height != 0; ++i) {
        samples[i] = static_cast<std::uint16_t>(samples[i] + height);
        height = height * 31 / 32;
      }
    }
  }

  PulseOptions options_;
  Pacer pacer_;
  std::vector<std::uint16_t> waveform_; // of event next_, if made_
  EventNumber next_ = 0;
  bool made_ = false;
};

// Turns the keys of the configuration into a source. A wrong or unknown key becomes an error that
// names file, line and key.
Result<std::unique_ptr<Source>> make_pulse_source(const SourceSettings& settings) {
  SettingsReader reader(settings);
  PulseOptions options;
  options.source = settings.id;
  options.seed = settings.seed;
  options.samples = static_cast<std::uint32_t>(reader.integer("samples", 1024, 1, 65536));
  options.channels = static_cast<std::uint32_t>(reader.integer("channels", 4, 1, 64));
  options.rate_hz = reader.rate_hz("rate", 0);
  options.occupancy = static_cast<std::uint64_t>(reader.integer("occupancy", 80, 0, 100));
  if (auto good = reader.finish(); !good) return std::unexpected(good.error());
  return std::make_unique<PulseSource>(options);
}

} // namespace

FANIN_PLUGIN_ABI

extern "C" void fanin_register(fanin::executive::PluginRegistry& registry) {
  registry.add_source("pulse", make_pulse_source);
}
