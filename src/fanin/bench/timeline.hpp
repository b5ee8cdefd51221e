// Event building in the course of time: throughput, processor time, temperature and power, while
// other work may begin beside it (fanin bench evb --every).
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "fanin/base/clock.hpp"
#include "fanin/base/json.hpp"
#include "fanin/bench/machine.hpp"
#include "fanin/bench/plot.hpp"
#include "fanin/bench/processes.hpp"
#include "fanin/bench/sensors.hpp"

namespace fanin::bench {

struct TimelineOptions {
  Duration every = std::chrono::seconds{1};
  std::size_t side_load = 0; // cores
  double side_load_from = 0.5; // share of the measurement after which it begins
  std::optional<std::filesystem::path> sensors = "/"; // where they are; none: on other hosts
};

// Thread: one.
class Timeline {
public:
  Timeline(const TimelineOptions& options, Duration duration);

  // For the measurement that it describes. It begins to watch at the first sample.
  [[nodiscard]] Watch watch();
  // The side load has ended after this. The member `timeline` of a result.
  [[nodiscard]] json::Value report();

private:
  // What this process itself has used until then.
  struct Use {
    Duration at{}; // since the measurement began
    double cpu_s = 0;
    std::uint64_t reads = 0; // system calls
  };
  [[nodiscard]] static Use own_use(Duration at);
  void on_sample(Duration since_begin, const Sample& sample);
  void start_side_load(Duration at);
  [[nodiscard]] double side_load_cpu(Time now);

  TimelineOptions options_;
  Duration duration_;
  std::optional<Sensors> sensors_;
  ProcessGroup side_load_;
  std::optional<Duration> side_load_at_; // when it began
  std::string side_load_error_;
  double side_load_cpu_s_ = 0; // at the last sample
  Time side_load_read_{};
  ProcessorTime processor_time_;
  Use first_; // after the first sample
  Use last_;
  std::size_t samples_ = 0;
  json::Value moments_{json::List{}};
};

// Of the member `timeline` of a result: a row for each moment. NA: not available.
[[nodiscard]] std::string timeline_csv(const json::Value& timeline);
[[nodiscard]] std::string timeline_table(const json::Value& timeline);
[[nodiscard]] Plot timeline_plot(const json::Value& timeline, std::string title);

} // namespace fanin::bench
