// The rates of the last hour, second by second.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>

#include "fanin/base/json.hpp"

namespace fanin::operation {

// What is counted of a run up to now.
struct RunCounts {
  std::uint64_t events = 0;
  std::uint64_t incomplete = 0;
  std::uint64_t bytes = 0;
};

struct RunRates {
  double events_hz = 0;
  double incomplete_hz = 0;
  double bytes_per_s = 0;
};

// Thread: one.
class History {
public:
  static constexpr std::size_t seconds_max = 3600;

  // A run begins to count at 0.
  void begin_run() { before_ = RunCounts{}; }
  // One that has counted before: its rate is known with the second value.
  void join_run() { before_.reset(); }
  // Once a second while a run lives, or not: then nothing is known.
  void add(const RunCounts& now, double seconds);
  void add_unknown();
  [[nodiscard]] const RunRates& latest() const { return latest_; }
  // `end_ms`: when the last value was added.
  [[nodiscard]] json::Value to_json(std::int64_t end_ms) const;

private:
  struct Second {
    RunRates rates;
    bool known = false;
  };
  void push(const Second& second);

  std::deque<Second> seconds_;
  std::optional<RunCounts> before_ = RunCounts{}; // the last value
  RunRates latest_;
};

} // namespace fanin::operation
