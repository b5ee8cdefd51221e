#include "fanin/bench/plot.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <limits>
#include <string_view>

#include <fmt/format.h>

namespace fanin::bench {
namespace {

std::string escaped(std::string_view text) {
  std::string result;
  for (const char c : text) {
    switch (c) {
    case '<': result += "&lt;"; break;
    case '>': result += "&gt;"; break;
    case '&': result += "&amp;"; break;
    default: result += c;
    }
  }
  return result;
}

struct PlotRange {
  double from = std::numeric_limits<double>::infinity();
  double to = -std::numeric_limits<double>::infinity();
  void include(double value) {
    from = std::min(from, value);
    to = std::max(to, value);
  }
  [[nodiscard]] bool empty() const { return from > to; }
};

// Values of one axis on the drawing, between `begin` and `end`.
class Scale {
public:
  Scale(bool logarithmic, PlotRange range, double begin, double end)
      : logarithmic_(logarithmic), range_(range), begin_(begin), end_(end) {}
  [[nodiscard]] bool shows(double value) const { return !logarithmic_ || value > 0; }
  [[nodiscard]] double at(double value) const {
    const double share = logarithmic_
                             ? std::log(value / range_.from) / std::log(range_.to / range_.from)
                             : (value - range_.from) / (range_.to - range_.from);
    return begin_ + share * (end_ - begin_);
  }
  [[nodiscard]] const PlotRange& range() const { return range_; }

private:
  bool logarithmic_;
  PlotRange range_;
  double begin_;
  double end_;
};

// Multiples of a step, or powers of ten.
std::vector<PlotTick> ticks_of(const PlotAxis& axis, const PlotRange& range, int count) {
  if (!axis.ticks.empty()) return axis.ticks;
  std::vector<PlotTick> ticks;
  if (axis.logarithmic) {
    for (int exponent = static_cast<int>(std::ceil(std::log10(range.from) - 1e-9));
         exponent <= std::log10(range.to) + 1e-9; ++exponent)
      ticks.push_back({std::pow(10, exponent), fmt::format("1e{}", exponent)});
    return ticks;
  }
  const double step = tick_step(range.to - range.from, count);
  for (double i = std::ceil(range.from / step - 1e-9); i * step <= range.to + step * 1e-9; ++i)
    ticks.push_back({i * step, fmt::format("{:.6g}", i * step)});
  return ticks;
}

class Drawing {
public:
  explicit Drawing(const Plot& plot)
      : plot_(plot),
        right_(has_names(plot) ? width - margin_of_names : width - margin),
        x_(plot.x.logarithmic, x_range(plot), left, right_) {}

  std::string draw() {
    double height = top - gap + bottom;
    for (const auto& panel : plot_.panels) height += panel.height + gap;
    add("<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {1}\" width=\"{0}\" "
        "height=\"{1}\" font-family=\"sans-serif\" font-size=\"12\">\n"
        "<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n",
        width, height);
    text(left, title_at, "start", plot_.title, "font-size=\"14\"");
    double at = top;
    for (const auto& panel : plot_.panels) {
      draw_panel(panel, at);
      at += panel.height + gap;
    }
    draw_x_axis(at - gap);
    for (const auto& mark : plot_.marks) draw_mark(mark, at - gap);
    svg_ += "</svg>\n";
    return std::move(svg_);
  }

private:
  static constexpr double width = 800;
  static constexpr double left = 90;
  static constexpr double margin = 20; // on the right
  static constexpr double margin_of_names = 170; // likewise, with the names of curves there
  static constexpr double title_at = 18;
  static constexpr double top = 46;
  static constexpr double bottom = 50;
  static constexpr double gap = 25; // between panels
  static constexpr double line_height = 16;
  // Told apart also by who does not see all colours (Okabe and Ito).
  static constexpr std::array<std::string_view, 7> colours{
      "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000"};

  static bool has_names(const Plot& plot) {
    return std::ranges::any_of(plot.panels, [](const auto& one) { return one.curves.size() > 1; });
  }
  static PlotRange x_range(const Plot& plot) {
    PlotRange range;
    for (const auto& panel : plot.panels) {
      for (const auto& curve : panel.curves) {
        for (const auto& point : curve.points) {
          if (!plot.x.logarithmic || point.x > 0) range.include(point.x);
        }
      }
    }
    if (range.empty()) range = {.from = 1, .to = 2};
    if (range.to <= range.from) range.to = plot.x.logarithmic ? range.from * 2 : range.from + 1;
    return range;
  }
  // Empty: no value is known.
  static PlotRange y_range(const PlotPanel& panel) {
    PlotRange range;
    for (const auto& curve : panel.curves) {
      for (const auto& point : curve.points) {
        if (point.y && (!panel.y.logarithmic || *point.y > 0)) range.include(*point.y);
      }
    }
    if (range.empty()) return range;
    if (panel.y.logarithmic) {
      return {.from = std::pow(10, std::floor(std::log10(range.from))),
              .to = std::pow(10, std::floor(std::log10(range.to)) + 1)};
    }
    const double step = tick_step(range.to, y_ticks);
    return {.from = 0, .to = std::max(1.0, std::ceil(range.to / step - 1e-9)) * step};
  }

  template <class... Arguments>
  void add(fmt::format_string<Arguments...> format, Arguments&&... arguments) {
    fmt::format_to(std::back_inserter(svg_), format, std::forward<Arguments>(arguments)...);
  }
  void text(double x, double y, std::string_view anchor, std::string_view words,
            std::string_view more = "") {
    add("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\" {}>{}</text>\n", x, y, anchor, more,
        escaped(words));
  }
  void line(double x1, double y1, double x2, double y2, std::string_view style) {
    add("<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" {}/>\n", x1, y1, x2, y2,
        style);
  }

  void draw_panel(const PlotPanel& panel, double at) {
    const double base = at + panel.height;
    add("<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" fill=\"none\" stroke=\"#888\"/>\n",
        left, at, right_ - left, panel.height);
    add("<text transform=\"translate(18 {:.1f}) rotate(-90)\" text-anchor=\"middle\">{}</text>\n",
        at + panel.height / 2, escaped(panel.y.name));
    const PlotRange range = y_range(panel);
    if (range.empty()) {
      text((left + right_) / 2, at + panel.height / 2, "middle", "not available", "fill=\"#888\"");
      return;
    }
    const Scale y(panel.y.logarithmic, range, base, at);
    for (const auto& tick : ticks_of(panel.y, range, y_ticks)) {
      line(left, y.at(tick.at), right_, y.at(tick.at), "stroke=\"#ddd\"");
      text(left - 6, y.at(tick.at) + 4, "end", tick.text);
    }
    for (std::size_t i = 0; i < panel.curves.size(); ++i) {
      const std::string_view colour = colours[i % colours.size()];
      const bool known = draw_curve(panel.curves[i], colour, y);
      if (panel.curves.size() == 1) continue;
      text(right_ + 8, at + line_height * (static_cast<double>(i) + 1), "start",
           panel.curves[i].name + (known ? "" : ": not available"),
           fmt::format("fill=\"{}\"", colour));
    }
  }

  // A line through neighbours, and a dot for each point. True: there was one.
  bool draw_curve(const Curve& curve, std::string_view colour, const Scale& y) {
    std::string points;
    std::size_t count = 0;
    bool any = false;
    const auto finish = [&] {
      if (count > 1)
        add("<polyline points=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"1.8\"/>\n", points,
            colour);
      points.clear();
      count = 0;
    };
    for (const auto& point : curve.points) {
      if (!point.y || !y.shows(*point.y) || !x_.shows(point.x)) {
        finish();
        continue;
      }
      any = true;
      points +=
          fmt::format("{}{:.1f},{:.1f}", count == 0 ? "" : " ", x_.at(point.x), y.at(*point.y));
      ++count;
      add("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"2.5\" fill=\"{}\"/>\n", x_.at(point.x),
          y.at(*point.y), colour);
    }
    finish();
    return any;
  }

  void draw_x_axis(double end) {
    for (const auto& tick : ticks_of(plot_.x, x_.range(), x_ticks)) {
      line(x_.at(tick.at), end, x_.at(tick.at), end + 4, "stroke=\"#888\"");
      text(x_.at(tick.at), end + 18, "middle", tick.text);
    }
    text((left + right_) / 2, end + 38, "middle", plot_.x.name);
  }

  void draw_mark(const PlotMark& mark, double end) {
    if (mark.x < x_.range().from || mark.x > x_.range().to) return;
    line(x_.at(mark.x), top, x_.at(mark.x), end, "stroke=\"#444\" stroke-dasharray=\"5 4\"");
    text(x_.at(mark.x) + 4, top - 6, "start", mark.text, "fill=\"#444\"");
  }

  static constexpr int x_ticks = 10; // about
  static constexpr int y_ticks = 5;  // likewise

  const Plot& plot_;
  double right_;
  Scale x_;
  std::string svg_;
};

} // namespace

double tick_step(double most, int count) {
  if (!(most > 0) || !std::isfinite(most)) return 1;
  const double least = most / count;
  const double power = std::pow(10, std::floor(std::log10(least)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (factor * power >= least * (1 - 1e-9)) return factor * power;
  }
  return 10 * power;
}

std::string to_svg(const Plot& plot) { return Drawing{plot}.draw(); }

} // namespace fanin::bench
