#include "virtual/more_draws.hpp"

#include <algorithm>
#include <array>
#include <chrono>

#include <fmt/format.h>

namespace fanin::testing {

using namespace std::chrono_literals;

MoreDraws::MoreDraws(std::uint64_t seed, VirtualSystemOptions& options)
    : on_(seed / 6 % 2 == 1),
      random_(seed * 0x9e3779b97f4a7c15U),
      rails_(~seed * 0x9e3779b97f4a7c15U) {
  if (!on_) return;
  const bool odd = seed % 2 == 0;
  draw_settings(options);
  if (random_.chance(1, 4)) {
    draw_slow_links(options);
  } else if (!odd && random_.chance(1, 2)) {
    draw_full_rate(options);
  }
  if (!odd && random_.chance(1, 2)) draw_counters(options);
  draw_rails(options);
}

void MoreDraws::draw_rails(VirtualSystemOptions& options) {
  has_rails_ = rails_.chance(1, 3);
  if (!has_rails_) return;
  options.control_rails = 2 + rails_.below(2);
  text_ += fmt::format("{} rails of control\n", options.control_rails);
}

void MoreDraws::draw_settings(VirtualSystemOptions& options) {
  constexpr std::array<Duration, 4> deadlines{200ms, 200ms, 50ms, 1000ms};
  options.system.event_deadline = deadlines[random_.below(deadlines.size())];
  constexpr std::array<Duration, 4> latencies{0ms, 5ms, 20ms, 100ms};
  const Duration latency = latencies[random_.below(latencies.size())];
  options.system.latency = std::min(latency, options.system.event_deadline / 2);
  text_ += fmt::format("deadline {} ms, latency {} ms\n", options.system.event_deadline / 1ms,
                       options.system.latency / 1ms);
}

// The largest message takes up to three deadlines; with a barrel shifter a round does, in which a
// readout unit sends to each builder unit in turn. Not too much waits at the end.
void MoreDraws::draw_slow_links(VirtualSystemOptions& options) {
  const Duration longest = std::min(3 * options.system.event_deadline, Duration{1s});
  const bool in_turn = options.system.shaping.fills_carriers();
  const std::size_t units =
      std::max(options.system.readout_units.size(), options.system.builder_units.size());
  const auto limit = static_cast<std::uint64_t>(longest.count()) / (in_turn ? units : 1);
  const Duration time{1'000'000 + random_.below(limit)};
  const double seconds = static_cast<double>(time.count()) * 1e-9;
  link_rate_ = static_cast<std::uint64_t>(options.system.message_max() / seconds);
  options.system.trigger_window = in_turn ? 200 : 2000;
  text_ += fmt::format("links of {} B/s\n", link_rate_);
}

// The run is over when all are at their end.
void MoreDraws::draw_full_rate(VirtualSystemOptions& options) {
  const std::uint64_t events = 1000 + random_.below(20'000);
  options.source_rate_hz = 0;
  if (options.system.trigger_rate_hz > 0) {
    options.system.trigger_rate_hz = 100'000;
    options.system.events_max = events;
  } else {
    options.source_events = events;
  }
  if (random_.chance(1, 2)) options.size = source::FixedSize{8};
  if (random_.chance(1, 2)) { // pools so large that control is what runs out
    options.receive_pages = 4096;
    options.source_pages = 64;
    options.source_window = 16384;
  }
  text_ += fmt::format("{} events as fast as they may, batches of {}\n", events,
                       options.system.batch_events);
}

void MoreDraws::draw_counters(VirtualSystemOptions& options) {
  const bool triggered = options.system.trigger_rate_hz > 0;
  constexpr std::array<EventNumber, 3> firsts{0, 1000, 1'000'000'000};
  if (!triggered) first_event_ = firsts[random_.below(firsts.size())];
  constexpr std::array<int, 4> widths{64, 48, 32, 24};
  // A paced emulator gives one fragment before the first event for each read.
  std::uint64_t early_limit = 100;
  if (!triggered && options.source_rate_hz > 0) {
    const Duration period{static_cast<Duration::rep>(1e9 / options.source_rate_hz)};
    const Duration step = std::max(period, options.system.read_pause());
    early_limit = static_cast<std::uint64_t>(options.system.event_deadline / (2 * step));
  }
  for (const auto& info : options.system.sources) {
    Counter& counter = counters_[info.id];
    counter.bits = widths[random_.below(widths.size())];
    const std::uint64_t range = EventNumber{1} << std::min(counter.bits, 40);
    counter.begins =
        random_.chance(1, 2) ? range - 1000 - random_.below(5000) : 100 + random_.below(range / 2);
    // Sources are told where the run begins, and may have been there before the first event only;
    // who takes a deadline to reach it is given up.
    if (first_event_ > 0 && random_.chance(1, 2)) {
      counter.garbage = 1 + random_.below(std::min<std::uint64_t>(100, early_limit));
    }
    text_ += fmt::format("{} begins at {} of {} bits, {} too early\n", info.name, counter.begins,
                         counter.bits, counter.garbage);
  }
  options.queue = [this](const builder::SourceInfo& info, source::FragmentQueueOptions& queue) {
    const Counter& counter = counters_.at(info.id);
    queue.counter_bits = counter.bits;
    queue.offset = static_cast<std::int64_t>(first_event_ - counter.begins);
    if (counter.garbage > 0) queue.first = first_event_;
  };
  options.make_source = [this, size = options.size, seed = options.seed,
                         rate_hz = triggered ? 0 : options.source_rate_hz,
                         events = options.source_events](const builder::SourceInfo& info) {
    const Counter& counter = counters_.at(info.id);
    return std::make_unique<source::Emulator>(
        source::EmulatorOptions{.source = info.id,
                                .size = size,
                                .rate_hz = rate_hz,
                                .seed = seed,
                                .first_event = counter.begins - counter.garbage,
                                .event_count = events == 0 ? 0 : events + counter.garbage});
  };
  options.check_bytes = [this](const storage::StoredFragment& fragment, EventNumber event) {
    return emulated_bytes(fragment, event - first_event_ + counters_.at(fragment.source).begins);
  };
}

void MoreDraws::step(Trouble& trouble) {
  if (on_ && random_.chance(1, 3)) trouble.step_more(random_);
  if (has_rails_ && rails_.chance(1, 3)) trouble.break_rail(rails_);
}

std::uint64_t MoreDraws::dropped(SourceId source) const {
  const auto counter = counters_.find(source);
  return counter == counters_.end() ? 0 : counter->second.garbage;
}

} // namespace fanin::testing
