#include "fanin/simulation/sweep_plot.hpp"

#include <algorithm>
#include <functional>
#include <optional>
#include <string>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace fanin::simulation {
namespace {

using bench::Curve;
using bench::PlotPanel;
using bench::PlotTick;
using Value = std::function<std::optional<double>(const Outcome&)>;

// Values of keys have units, or are words: they stand side by side, in their order.
std::vector<std::string> values_of_last_key(const std::vector<SweepResult>& results) {
  std::vector<std::string> values;
  for (const SweepResult& result : results) {
    const std::string value = result.point.empty() ? "" : result.point.back().second;
    if (std::ranges::find(values, value) == values.end()) values.push_back(value);
  }
  return values;
}

std::string name_of_curve(const Point& point) {
  std::vector<std::string> words;
  for (std::size_t i = 0; i + 1 < point.size(); ++i)
    words.push_back(fmt::format("{} = {}", point[i].first, point[i].second));
  return fmt::format("{}", fmt::join(words, ", "));
}

// For each combination of the other keys, named after it and after what is drawn.
void add_curves(PlotPanel& panel, const std::vector<SweepResult>& results,
                const std::vector<std::string>& values, const std::string& what,
                const Value& value) {
  const std::size_t before = panel.curves.size();
  for (const SweepResult& result : results) {
    const std::string others = name_of_curve(result.point);
    const bool both = !what.empty() && !others.empty();
    const std::string name = fmt::format("{}{}{}", what, both ? ", " : "", others);
    auto curve =
        std::find_if(panel.curves.begin() + static_cast<std::ptrdiff_t>(before), panel.curves.end(),
                     [&](const Curve& known) { return known.name == name; });
    if (curve == panel.curves.end()) {
      panel.curves.push_back({.name = name, .points = {}});
      curve = panel.curves.end() - 1;
    }
    const std::string at = result.point.empty() ? "" : result.point.back().second;
    const auto x = std::ranges::find(values, at) - values.begin();
    curve->points.push_back(
        {.x = static_cast<double>(x), .y = result.outcome ? value(*result.outcome) : std::nullopt});
  }
}

Value latency_us(double fraction) {
  return [fraction](const Outcome& outcome) -> std::optional<double> {
    if (outcome.latency.count() == 0) return std::nullopt;
    return static_cast<double>(outcome.latency.quantile(fraction).count()) * 1e-3;
  };
}

} // namespace

bench::Plot plot_of(const std::vector<SweepResult>& results) {
  const std::vector<std::string> values = values_of_last_key(results);
  bench::Plot plot;
  plot.title = "simulated network";
  const bool swept = !results.empty() && !results.front().point.empty();
  plot.x.name = swept ? results.front().point.back().first : "";
  for (std::size_t i = 0; i < values.size(); ++i)
    plot.x.ticks.push_back({.at = static_cast<double>(i), .text = values[i]});

  PlotPanel share{.y = {.name = "share of the links (%)"}, .curves = {}};
  add_curves(share, results, values, "destinations",
             [](const Outcome& outcome) { return 100 * outcome.saturation; });
  add_curves(share, results, values, "busiest link", [](const Outcome& outcome) {
    return outcome.busiest.empty() ? std::nullopt : std::optional(100 * outcome.busiest[0].share);
  });
  PlotPanel rate{.y = {.name = "a node (MB/s)"}, .curves = {}};
  add_curves(rate, results, values, "",
             [](const Outcome& outcome) { return 1e-6 * outcome.per_node_bytes_per_s; });
  PlotPanel latency{.y = {.name = "latency (us)", .logarithmic = true}, .curves = {}};
  add_curves(latency, results, values, "half", latency_us(0.5));
  add_curves(latency, results, values, "99 %", latency_us(0.99));
  PlotPanel queues{.y = {.name = "fullest queue (KiB)"}, .curves = {}};
  add_curves(queues, results, values, "",
             [](const Outcome& outcome) { return static_cast<double>(outcome.queue_most) / 1024; });
  plot.panels = {std::move(share), std::move(rate), std::move(latency), std::move(queues)};
  return plot;
}

} // namespace fanin::simulation
