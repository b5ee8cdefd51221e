// Measurements as a drawing (SVG), for documents.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace fanin::bench {

struct PlotPoint {
  double x = 0;
  std::optional<double> y; // none: a gap
};

struct Curve {
  std::string name;
  std::vector<PlotPoint> points;
};

struct PlotTick {
  double at = 0;
  std::string text;
};

struct PlotAxis {
  std::string name; // what it is, with its unit
  bool logarithmic = false; // values that are not above zero are left out
  std::vector<PlotTick> ticks; // empty: chosen
};

// Curves with one y axis, which begins at zero or, if it is logarithmic, at a power of ten.
struct PlotPanel {
  PlotAxis y;
  std::vector<Curve> curves;
  double height = 150;
};

struct PlotMark {
  double x = 0;
  std::string text;
};

// Panels one below the other, with one x axis.
struct Plot {
  std::string title;
  PlotAxis x;
  std::vector<PlotPanel> panels;
  std::vector<PlotMark> marks; // lines through all panels
};

// Where a curve has no point with a value, or a panel no curve, it says "not available".
[[nodiscard]] std::string to_svg(const Plot& plot);

// Steps of 1, 2 or 5 times a power of ten, so that `most` is reached within `count` of them.
[[nodiscard]] double tick_step(double most, int count);

} // namespace fanin::bench
