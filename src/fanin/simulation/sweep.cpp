#include "fanin/simulation/sweep.hpp"

#include <algorithm>
#include <atomic>
#include <charconv>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <thread>

#include <fmt/format.h>

#include "fanin/base/thrown.hpp"
#include "fanin/base/try.hpp"

namespace fanin::simulation {
namespace {

constexpr std::size_t points_most = 100'000;
constexpr auto progress_interval = std::chrono::milliseconds{200};

std::optional<std::uint64_t> whole_number(std::string_view text) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return value;
}

Result<std::vector<std::string>> values_of(std::string_view list, const std::string& sweep) {
  std::vector<std::string> values;
  while (true) {
    const std::size_t comma = list.find(',');
    const std::string_view word = list.substr(0, comma);
    const std::size_t dots = word.find("..");
    const auto first = whole_number(word.substr(0, dots));
    const auto last = dots == std::string_view::npos ? first : whole_number(word.substr(dots + 2));
    if (dots != std::string_view::npos) {
      if (!first || !last || *last < *first || *last - *first >= points_most)
        return fail(
            ErrorKind::usage,
            fmt::format("--sweep {}: \"{}\" is no range of whole numbers, as 1..8", sweep, word));
      for (std::uint64_t i = 0; i <= *last - *first; ++i)
        values.push_back(fmt::to_string(*first + i));
    } else if (word.empty()) {
      return fail(ErrorKind::usage, fmt::format("--sweep {}: a value is missing", sweep));
    } else {
      values.emplace_back(word);
    }
    if (comma == std::string_view::npos) return values;
    list.remove_prefix(comma + 1);
  }
}

// What the threads of a sweep share.
struct Shared {
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<std::optional<Result<Outcome>>> outcomes; // under the mutex
  std::vector<Passed> passed; // likewise, of each point
  std::atomic<std::size_t> next = 0;

  explicit Shared(std::size_t points) : outcomes(points), passed(points) {}
};

// What libraries throw, as where memory is missing, ends this point alone.
Result<Outcome> simulate_safely(const Simulate& simulate, const Point& point,
                                const Watch& watch) try {
  return simulate(point, watch);
} catch (...) {
  return std::unexpected(thrown());
}

void simulate_points(const std::vector<Point>& points, const Simulate& simulate, Shared& shared) {
  for (std::size_t i = shared.next++; i < points.size(); i = shared.next++) {
    const Watch watch = [&](const Passed& passed) {
      const std::scoped_lock lock(shared.mutex);
      shared.passed[i] = passed;
    };
    auto outcome = simulate_safely(simulate, points[i], watch);
    const std::scoped_lock lock(shared.mutex);
    shared.outcomes[i] = std::move(outcome);
    shared.changed.notify_one();
  }
}

SweepProgress progress_of(Shared& shared, std::size_t results) {
  const std::scoped_lock lock(shared.mutex);
  const std::size_t points = shared.outcomes.size();
  auto sum = static_cast<double>(results);
  for (std::size_t i = results; i < points; ++i)
    sum += shared.outcomes[i] ? 1 : shared.passed[i].share();
  return {results, points, sum / static_cast<double>(points), shared.passed[results]};
}

} // namespace

Result<std::vector<Point>> points_of(const std::vector<std::string>& sweeps) {
  std::vector<Point> points{{}};
  std::vector<std::string> keys;
  for (const std::string& sweep : sweeps) {
    const std::size_t sign = sweep.find('=');
    if (sign == 0 || sign == std::string::npos)
      return fail(ErrorKind::usage,
                  fmt::format("--sweep {}: write KEY=LIST, as fabric.nodes=1,2,4..8", sweep));
    const std::string key = sweep.substr(0, sign);
    const bool again = std::ranges::find(keys, key) != keys.end();
    if (again) return fail(ErrorKind::usage, fmt::format("--sweep {}: give each key once", sweep));
    keys.push_back(key);
    const auto values = FANIN_TRY(values_of(std::string_view(sweep).substr(sign + 1), sweep));
    if (points.size() * values.size() > points_most)
      return fail(ErrorKind::usage,
                  fmt::format("--sweep {}: more than {} points", sweep, points_most));
    std::vector<Point> all;
    for (const Point& point : points) {
      for (const std::string& value : values) {
        all.push_back(point);
        all.back().emplace_back(key, value);
      }
    }
    points = std::move(all);
  }
  return points;
}

std::vector<std::string> overrides_of(const Point& point) {
  std::vector<std::string> overrides;
  for (const auto& [key, value] : point) overrides.push_back(fmt::format("{}={}", key, value));
  return overrides;
}

std::size_t threads_for(std::size_t points) {
  return std::clamp<std::size_t>(std::thread::hardware_concurrency(), 1, points);
}

std::vector<SweepResult> run_sweep(const std::vector<Point>& points, const Simulate& simulate,
                                   const SweepObserver& observer) {
  Shared shared(points.size());
  const std::size_t count = threads_for(points.size());
  std::vector<std::jthread> threads;
  for (std::size_t i = 0; i < count; ++i)
    threads.emplace_back([&] { simulate_points(points, simulate, shared); });

  std::vector<SweepResult> results;
  while (results.size() < points.size()) {
    std::optional<Result<Outcome>> next;
    {
      std::unique_lock lock(shared.mutex);
      shared.changed.wait_for(lock, progress_interval,
                              [&] { return shared.outcomes[results.size()].has_value(); });
      next.swap(shared.outcomes[results.size()]);
    }
    if (!next) {
      observer.on_progress(progress_of(shared, results.size()));
      continue;
    }
    results.push_back({.point = points[results.size()], .outcome = std::move(*next)});
    observer.on_result(results.back());
  }
  return results;
}

} // namespace fanin::simulation
