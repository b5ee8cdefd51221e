// What people see of the benchmarks of messages: a table, a drawing.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "fanin/base/units.hpp"
#include "fanin/bench/measure.hpp"
#include "fanin/bench/message_bench.hpp"
#include "fanin/bench/plot.hpp"
#include "fanin/bench/port.hpp"

namespace fanin::bench {
namespace {

constexpr std::uint64_t small_size = 4096; // below, messages per second say more than bytes

// What the rows have under a key, each once, in their order.
template <class Read>
auto distinct(const json::Value& result, std::string_view key, Read read) {
  std::vector<decltype(read(result))> found;
  for (const auto& row : result.at("results").list()) {
    auto value = read(row.at(key));
    if (std::ranges::find(found, value) == found.end()) found.push_back(std::move(value));
  }
  return found;
}
auto names_in(const json::Value& result) {
  return distinct(result, "what", [](const json::Value& value) { return value.text(); });
}
auto sizes_in(const json::Value& result) {
  return distinct(result, "size_bytes", [](const json::Value& value) { return value.natural(); });
}

const json::Value& row_of(const json::Value& result, std::uint64_t size, std::string_view what) {
  static const json::Value none;
  for (const auto& row : result.at("results").list()) {
    if (row.at("size_bytes").natural() == size && row.at("what").text() == what) return row;
  }
  return none;
}

std::string stats(const json::Value& row, std::uint64_t size) {
  if (row.find("p50_us") != nullptr && row.at("p50_us").is_null()) return "-";
  if (!row.at("p50_us").is_null()) {
    return fmt::format("{:.3g}/{:.3g}/{:.3g} us", row.at("p50_us").real(), row.at("p99_us").real(),
                       row.at("p999_us").real());
  }
  if (size < small_size) return fmt::format("{:.3g} M/s", row.at("messages_per_s").real() * 1e-6);
  return fmt::format("{:.3g} GB/s", row.at("bytes_per_s").real() * 1e-9);
}

// Of fanin's row, and of the loaded one's.
std::vector<std::pair<std::string, std::string>> ratios_of(const json::Value& result,
                                                           std::uint64_t size) {
  std::vector<std::pair<std::string, std::string>> ratios;
  for (const char* what : {"fanin", "fanin-loaded"}) {
    const json::Value& row = row_of(result, size, what);
    for (const char* to :
         {"link", "raw", "fair", "zeromq", "point_to_point", "one_rail", "unloaded"}) {
      const json::Value& ratio = row.at(fmt::format("ratio_to_{}", to));
      const bool of_loaded = std::string_view{to} == "unloaded";
      if (!ratio.is_null() && of_loaded == (std::string_view{what} == "fanin-loaded"))
        ratios.emplace_back(fmt::format("/{}", to), fmt::format("{:.2f}", ratio.real()));
    }
  }
  if (auto share = share_text(row_of(result, size, "fanin")); !share.empty())
    ratios.emplace_back("/port", std::move(share));
  return ratios;
}

} // namespace

std::string message_table(const json::Value& result) {
  const auto names = names_in(result);
  std::string text;
  for (const std::uint64_t size : sizes_in(result)) {
    const auto ratios = ratios_of(result, size);
    if (text.empty()) {
      text = fmt::format("{:>8}", "size");
      for (const auto& what : names) text += fmt::format(" {:>20}", what);
      for (const auto& [to, ratio] : ratios) text += fmt::format(" {:>{}}", to, to.size() + 3);
      text += '\n';
    }
    text += fmt::format("{:>8}", format_size(size));
    for (const auto& what : names)
      text += fmt::format(" {:>20}", stats(row_of(result, size, what), size));
    for (const auto& [to, ratio] : ratios) text += fmt::format(" {:>{}}", ratio, to.size() + 3);
    text += '\n';
  }
  if (result.at("bench").text() == "roundtrip") text += "p50/p99/p99.9; /x: fanin's time of x's\n";
  const std::uint64_t under_way = result.at("settings").at("pipeline").natural();
  for (const auto& row : result.at("results").list()) {
    const std::string at =
        fmt::format("{} at {}", row.at("what").text(), format_size(row.at("size_bytes").natural()));
    if (result.at("bench").text() == "roundtrip" && under_way > 1)
      text += fmt::format("{}: {} in both directions together, {} messages under way\n", at,
                          format_bandwidth(row.at("bytes_per_s").real()), under_way);
    if (row.find("load_bytes_per_s") != nullptr)
      text += fmt::format("{}: beside a stream of {}\n", at,
                          format_bandwidth(row.at("load_bytes_per_s").real()));
    if (row.find("ratio_to_apart") != nullptr)
      text += fmt::format("{}: {:.3f} of what crosses the links with a host for each\n", at,
                          row.at("ratio_to_apart").real());
    if (const auto network = network_text(row); !network.empty())
      text += fmt::format("{}: {}\n", at, network);
  }
  if (const auto port = port_text(result); !port.empty()) text += "/port: of " + port + "\n";
  text += fallback_text(result);
  for (const auto& remark : result.at("remarks").list()) text += remark.text() + "\n";
  return text;
}

std::string plot_over_sizes(const json::Value& result) {
  const bool roundtrip = result.at("bench").text() == "roundtrip";
  const char* const key = roundtrip ? "p50_us" : "bytes_per_s";
  Plot plot{.title = fmt::format("fanin bench {} {}", result.at("bench").text(),
                                 result.at("settings").at("url").text()),
            .x = {.name = "size", .logarithmic = true, .ticks = {}},
            .panels = {},
            .marks = {}};
  PlotPanel panel{.y = {.name = roundtrip ? "round trip, p50 (us)" : "throughput (B/s)",
                        .logarithmic = true,
                        .ticks = {}},
                  .curves = {},
                  .height = 370};
  for (const std::uint64_t size : sizes_in(result))
    plot.x.ticks.push_back({static_cast<double>(size), format_size(size)});
  for (const auto& what : names_in(result)) {
    Curve curve{.name = what, .points = {}};
    for (const std::uint64_t size : sizes_in(result))
      curve.points.push_back(
          {static_cast<double>(size), row_of(result, size, what).at(key).real()});
    panel.curves.push_back(std::move(curve));
  }
  if (const json::Value* required = result.at("settings").find("requirement_hz")) {
    Curve line{.name = "required: " + format_rate(required->real()), .points = {}};
    for (const std::uint64_t size : sizes_in(result))
      line.points.push_back({static_cast<double>(size),
                             row_of(result, size, "evb").at("required_bytes_per_s").real()});
    panel.curves.push_back(std::move(line));
  }
  plot.panels.push_back(std::move(panel));
  return to_svg(plot);
}

} // namespace fanin::bench
