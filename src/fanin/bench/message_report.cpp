// What people see of the benchmarks of messages: a table, a drawing.
#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "fanin/base/units.hpp"
#include "fanin/bench/message_bench.hpp"
#include "fanin/bench/port.hpp"

namespace fanin::bench {
namespace {

constexpr std::uint64_t small_size = 4096; // below, messages per second say more than bytes

std::vector<std::string> names_in(const json::Value& result) {
  std::vector<std::string> names;
  for (const auto& row : result.at("results").list()) {
    const std::string what = row.at("what").text();
    if (std::ranges::find(names, what) == names.end()) names.push_back(what);
  }
  return names;
}

std::vector<std::uint64_t> sizes_in(const json::Value& result) {
  std::vector<std::uint64_t> sizes;
  for (const auto& row : result.at("results").list()) {
    const std::uint64_t size = row.at("size_bytes").natural();
    if (sizes.empty() || sizes.back() != size) sizes.push_back(size);
  }
  return sizes;
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
    for (const char* to : {"link", "raw", "fair", "zeromq", "point_to_point", "unloaded"}) {
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
  for (const auto& row : result.at("results").list()) {
    if (row.find("load_bytes_per_s") == nullptr) continue;
    text += fmt::format("fanin-loaded at {}: beside a stream of {}\n",
                        format_size(row.at("size_bytes").natural()),
                        format_bandwidth(row.at("load_bytes_per_s").real()));
  }
  if (const auto port = port_text(result); !port.empty()) text += "/port: of " + port + "\n";
  for (const auto& remark : result.at("remarks").list()) text += remark.text() + "\n";
  return text;
}

namespace {

constexpr double width = 720;
constexpr double height = 440;
constexpr double plot_left = 70;
constexpr double plot_right = 130; // the legend
constexpr double top = 30;
constexpr double bottom = 40;
constexpr std::array<const char*, 7> colours{"#c0392b", "#2471a3", "#1e8449", "#b7950b",
                                             "#7d3c98", "#566573", "#ca6f1e"};

// A logarithmic axis.
struct Axis {
  double low = 0; // exponents of 10
  double high = 1;
  double from = 0; // on the drawing
  double to = 0;
  [[nodiscard]] double at(double value) const {
    return from + (std::log10(value) - low) / (high - low) * (to - from);
  }
};

} // namespace

std::string message_plot(const json::Value& result) {
  const bool roundtrip = result.at("bench").text() == "roundtrip";
  const char* const key = roundtrip ? "p50_us" : "bytes_per_s";
  double low = 1e300;
  double high = 0;
  for (const auto& row : result.at("results").list()) {
    const double value = row.at(key).real();
    if (value <= 0) continue;
    low = std::min(low, value);
    high = std::max(high, value);
  }
  const auto sizes = sizes_in(result);
  if (sizes.empty() || high == 0) return {};
  const Axis x{std::log10(static_cast<double>(sizes.front())) - 0.1,
               std::log10(static_cast<double>(sizes.back())) + 0.1, plot_left, width - plot_right};
  const Axis y{std::floor(std::log10(low)), std::ceil(std::log10(high) + 1e-9), height - bottom,
               top};
  std::string svg = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {1}\" width=\"{0}\" "
      "height=\"{1}\" font-family=\"sans-serif\" font-size=\"11\">\n<rect width=\"{0}\" "
      "height=\"{1}\" fill=\"white\"/>\n<text x=\"{2}\" y=\"18\">fanin bench {3} {4}: {5}</text>\n",
      width, height, plot_left, result.at("bench").text(), result.at("settings").at("url").text(),
      roundtrip ? "round trip, p50, us" : "bytes/s");
  for (double exponent = y.low; exponent <= y.high; ++exponent) {
    const double at = y.at(std::pow(10, exponent));
    svg += fmt::format("<path d=\"M{} {:.1f}H{}\" stroke=\"#ddd\"/>\n", plot_left, at,
                       width - plot_right);
    svg += fmt::format("<text x=\"{}\" y=\"{:.1f}\" text-anchor=\"end\">1e{}</text>\n",
                       plot_left - 6, at + 4, exponent);
  }
  for (const std::uint64_t size : sizes) {
    svg += fmt::format("<text x=\"{:.1f}\" y=\"{}\" text-anchor=\"middle\">{}</text>\n",
                       x.at(static_cast<double>(size)), height - bottom + 18, format_size(size));
  }
  std::size_t index = 0;
  for (const auto& what : names_in(result)) {
    const char* const colour = colours[index % colours.size()];
    std::string line;
    for (const std::uint64_t size : sizes) {
      const double value = row_of(result, size, what).at(key).real();
      if (value <= 0) continue;
      const double to_x = x.at(static_cast<double>(size));
      line += fmt::format("{}{:.1f} {:.1f}", line.empty() ? 'M' : 'L', to_x, y.at(value));
      svg += fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3\" fill=\"{}\"/>\n", to_x,
                         y.at(value), colour);
    }
    svg += fmt::format("<path d=\"{}\" fill=\"none\" stroke=\"{}\"/>\n", line, colour);
    svg += fmt::format("<text x=\"{}\" y=\"{}\" fill=\"{}\">{}</text>\n", width - plot_right + 10,
                       top + 16 + 16 * static_cast<double>(index), colour, what);
    ++index;
  }
  return svg + "</svg>\n";
}

} // namespace fanin::bench
