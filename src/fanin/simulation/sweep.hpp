// The points of a sweep, and their simulation on all cores.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "fanin/base/result.hpp"
#include "fanin/simulation/point.hpp"
#include "fanin/simulation/progress.hpp"

namespace fanin::simulation {

// Of "KEY=LIST" with a list as "1,2,8", "1..8" (each whole number) or "1..8,128", all combinations;
// the last sweep changes fastest. One empty point without any. Errors: usage, naming --sweep.
[[nodiscard]] Result<std::vector<Point>> points_of(const std::vector<std::string>& sweeps);

// The values of a point as overrides, as --set has them.
[[nodiscard]] std::vector<std::string> overrides_of(const Point& point);

struct SweepResult {
  Point point;
  Result<Outcome> outcome;
};

// Simulates one point; it runs on a thread of its own beside others.
using Simulate = std::function<Result<Outcome>(const Point& point, const Watch& watch)>;

struct SweepProgress {
  std::size_t results = 0; // that were given
  std::size_t points = 0; // in all
  double share = 0; // of all points, 0 to 1
  Passed first; // of the first point without a result
};

struct SweepObserver {
  std::function<void(const SweepResult&)> on_result; // in the order of the points
  std::function<void(const SweepProgress&)> on_progress; // now and then
};

// So many of them are simulated at the same time.
[[nodiscard]] std::size_t threads_for(std::size_t points);

// All points, on as many threads as there are cores, which have ended when it returns. A point that
// fails ends no other one. The observer is called on the calling thread.
[[nodiscard]] std::vector<SweepResult> run_sweep(const std::vector<Point>& points,
                                                 const Simulate& simulate,
                                                 const SweepObserver& observer);

} // namespace fanin::simulation
