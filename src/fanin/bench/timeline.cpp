#include "fanin/bench/timeline.hpp"

#include <sys/resource.h>

#include <array>
#include <cstdlib>
#include <fstream>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "fanin/executive/child.hpp"
#include "fanin/wire/checksum.hpp"

namespace fanin::bench {
namespace {

using Seconds = std::chrono::duration<double>;

// Larger than the caches of a core, so that the side load also takes memory bandwidth.
constexpr std::size_t side_load_bytes = 32U << 20;
constexpr std::size_t side_load_step = 64U << 10;

// Checksums of memory, until it is told to end.
Result<> load_one_core(ProcessStats& stats) {
  std::vector<std::byte> memory(side_load_bytes);
  stats.state = ProcessStats::State::running;
  std::uint32_t crc = 0;
  for (std::size_t at = 0; !termination_asked(); at = (at + side_load_step) % side_load_bytes) {
    crc = wire::crc32c(std::span(memory).subspan(at, side_load_step), crc);
    memory[at] = static_cast<std::byte>(crc);
    stats.load_bytes.add(side_load_step);
  }
  return {};
}

struct Column {
  std::string_view key;
  std::string_view title; // of the table
  int digits;
  double scale;
};
constexpr std::array<Column, 5 + quantities> columns{{{"at_s", "s", 1, 1},
                                                      {"bytes_per_s", "MB/s", 1, 1e-6},
                                                      {"events_per_s", "events/s", 0, 1},
                                                      {"cpu", "cores", 2, 1},
                                                      {"side_load_cpu", "side load", 2, 1},
                                                      {quantity_keys[0], "Celsius", 1, 1},
                                                      {quantity_keys[1], "processors W", 1, 1},
                                                      {quantity_keys[2], "host W", 1, 1}}};

} // namespace

Timeline::Timeline(const TimelineOptions& options, Duration duration)
    : options_(options), duration_(duration) {
  if (options_.sensors) sensors_.emplace(*options_.sensors);
}

Timeline::Use Timeline::own_use(Duration at) {
  Use use{.at = at};
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  use.cpu_s = executive::cpu_seconds(usage);
  std::ifstream file("/proc/self/io");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("syscr:")) use.reads = std::strtoull(line.c_str() + 6, nullptr, 10);
  }
  return use;
}

Watch Timeline::watch() {
  processor_time_ = processor_time();
  if (sensors_) (void)sensors_->read(MonotonicClock{}.now());
  return {.every = options_.every, .on_sample = [this](Duration since_begin, const Sample& sample) {
            on_sample(since_begin, sample);
          }};
}

void Timeline::start_side_load(Duration at) {
  side_load_at_ = at;
  for (std::size_t i = 0; i < options_.side_load; ++i) {
    const auto started = side_load_.start(fmt::format("load{}", i), load_one_core);
    const auto running = started ? side_load_.wait_until(*started, ProcessStats::State::running)
                                 : std::unexpected(started.error());
    if (!running) side_load_error_ = running.error().text;
  }
}

double Timeline::side_load_cpu(Time now) {
  double cpu_s = 0;
  for (std::size_t i = 0; i < side_load_.size(); ++i) cpu_s += side_load_.counts(i).cpu_s;
  const double used = cpu_s - std::exchange(side_load_cpu_s_, cpu_s);
  const double passed = Seconds(now - std::exchange(side_load_read_, now)).count();
  return side_load_.size() == 0 ? 0 : used / passed;
}

void Timeline::on_sample(Duration since_begin, const Sample& sample) {
  ++samples_;
  const Time now = MonotonicClock{}.now();
  json::Value moment;
  moment["at_s"] = Seconds(since_begin).count();
  moment["bytes_per_s"] = static_cast<double>(sample.bytes) / sample.seconds;
  moment["events_per_s"] = static_cast<double>(sample.events) / sample.seconds;
  double cpu = 0;
  for (const auto& process : sample.processes) cpu += process.cpu;
  moment["cpu"] = cpu;
  moment["side_load_cpu"] = side_load_cpu(now);
  const ProcessorTime time = processor_time();
  moment["stolen"] =
      share_between(std::exchange(processor_time_, time), time, &ProcessorTime::stolen);
  const SensorValues values = sensors_ ? sensors_->read(now) : SensorValues{};
  for (std::size_t i = 0; i < quantities; ++i) {
    moment[quantity_keys[i]] = values[i] ? json::Value{*values[i]} : json::Value{};
  }
  moments_.append(std::move(moment));
  const bool due =
      Seconds(since_begin).count() >= options_.side_load_from * Seconds(duration_).count();
  if (options_.side_load != 0 && due && !side_load_at_) start_side_load(since_begin);
  last_ = own_use(since_begin);
  if (samples_ == 1) first_ = last_;
}

json::Value Timeline::report() {
  for (std::size_t i = 0; i < side_load_.size(); ++i) side_load_.terminate(i);
  if (auto ended = side_load_.wait_until_ended(std::chrono::seconds{5}); !ended)
    side_load_error_ = ended.error().text;
  json::Value timeline;
  timeline["every_s"] = Seconds(options_.every).count();
  timeline["side_load_cores"] = options_.side_load;
  timeline["side_load_from_s"] =
      side_load_at_ ? json::Value{Seconds(*side_load_at_).count()} : json::Value{};
  if (!side_load_error_.empty()) timeline["side_load_error"] = side_load_error_;
  for (std::size_t i = 0; i < quantities; ++i) {
    const Sensors::Origin origin = sensors_ ? sensors_->origin(static_cast<Quantity>(i))
                                            : Sensors::Origin{false, "nodes are on other hosts"};
    json::Value& one = timeline["sensors"][quantity_keys[i]];
    one["available"] = origin.available;
    one["text"] = origin.text;
  }
  // Between the first sample and the last: before and after, processes start and end.
  const double passed = Seconds(last_.at - first_.at).count();
  const auto samples = static_cast<double>(samples_ > 1 ? samples_ - 1 : 1);
  timeline["sampling"]["cpu"] = passed > 0 ? (last_.cpu_s - first_.cpu_s) / passed : 0.0;
  timeline["sampling"]["reads_per_sample"] =
      static_cast<double>(last_.reads - first_.reads) / samples;
  timeline["moments"] = moments_;
  return timeline;
}

std::string timeline_csv(const json::Value& timeline) {
  std::string text;
  for (const auto& column : columns)
    text += fmt::format("{}{}", text.empty() ? "" : ",", column.key);
  text += "\n";
  for (const auto& moment : timeline.at("moments").list()) {
    std::string row;
    for (const auto& column : columns) {
      const json::Value& value = moment.at(column.key);
      row += fmt::format("{}{}", row.empty() ? "" : ",",
                         value.is_null() ? "NA" : fmt::format("{:.10g}", value.real()));
    }
    text += row + "\n";
  }
  return text;
}

std::string timeline_table(const json::Value& timeline) {
  std::string text;
  for (const auto& column : columns) text += fmt::format("{:>14}", column.title);
  text += "\n";
  for (const auto& moment : timeline.at("moments").list()) {
    for (const auto& column : columns) {
      const json::Value& value = moment.at(column.key);
      text += value.is_null()
                  ? fmt::format("{:>14}", "not available")
                  : fmt::format("{:>14.{}f}", value.real() * column.scale, column.digits);
    }
    text += "\n";
  }
  for (const auto& [key, sensor] : timeline.at("sensors").object()) {
    text += fmt::format(
        "{}: {}{}\n", key,
        sensor.at("available").boolean() ? "" : "not available: ", sensor.at("text").text());
  }
  if (timeline.find("side_load_error") != nullptr)
    text += fmt::format("side load: {}\n", timeline.at("side_load_error").text());
  text += fmt::format("sampling took {:.2f} % of a core\n",
                      timeline.at("sampling").at("cpu").real() * 100);
  return text;
}

Plot timeline_plot(const json::Value& timeline, std::string title) {
  const auto curve = [&timeline](std::string name, std::string_view key, double scale) {
    Curve made{.name = std::move(name), .points = {}};
    for (const auto& moment : timeline.at("moments").list()) {
      const json::Value& value = moment.at(key);
      made.points.push_back({moment.at("at_s").real(),
                             value.is_null() ? std::nullopt : std::optional(value.real() * scale)});
    }
    return made;
  };
  Plot plot{
      .title = std::move(title), .x = {.name = "time (s)", .ticks = {}}, .panels = {}, .marks = {}};
  const auto add = [&plot](std::string name, std::vector<Curve> curves) {
    plot.panels.push_back(
        {.y = {.name = std::move(name), .ticks = {}}, .curves = std::move(curves)});
  };
  add("throughput (MB/s)", {curve("", "bytes_per_s", 1e-6)});
  add("processor time (cores)",
      {curve("event building", "cpu", 1), curve("side load", "side_load_cpu", 1)});
  add("temperature (Celsius)", {curve("", "temperature_c", 1)});
  add("power (W)", {curve("processors", "processor_power_w", 1), curve("host", "host_power_w", 1)});
  if (!timeline.at("side_load_from_s").is_null())
    plot.marks.push_back({timeline.at("side_load_from_s").real(), "side load"});
  return plot;
}

} // namespace fanin::bench
