#include "fanin/bench/plot.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace fanin::bench {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(Plot, has_steps_that_people_read) {
  EXPECT_DOUBLE_EQ(tick_step(100, 5), 20);
  EXPECT_DOUBLE_EQ(tick_step(101, 5), 50);
  EXPECT_DOUBLE_EQ(tick_step(0.09, 5), 0.02);
  EXPECT_DOUBLE_EQ(tick_step(5e9, 5), 1e9);
  EXPECT_DOUBLE_EQ(tick_step(40, 5), 10);
  for (const double nothing : {0.0, -1.0, 1.0 / 0.0}) EXPECT_DOUBLE_EQ(tick_step(nothing, 5), 1);
}

TEST(Plot, draws_each_curve_from_its_first_point_to_its_last) {
  const std::string svg =
      to_svg({.title = "a < b",
              .x = {.name = "time (s)"},
              .panels = {{.y = {.name = "rate"}, .curves = {{"one", {{0, 0}, {10, 5}}}}}},
              .marks = {{5, "load"}}});
  EXPECT_THAT(svg, HasSubstr("points=\"90.0,196.0 780.0,46.0\""));
  EXPECT_THAT(svg, HasSubstr("a &lt; b"));
  EXPECT_THAT(svg, HasSubstr(">load<"));
  EXPECT_THAT(svg, Not(HasSubstr("not available")));
}

TEST(Plot, leaves_a_gap_where_nothing_is_known) {
  const std::string svg = to_svg(
      {.panels = {
           {.curves = {{"one", {{0, 1}, {1, 1}, {2, {}}, {3, 1}, {4, 1}, {5, {}}, {6, 1}}}}}}});
  std::size_t lines = 0;
  for (auto at = svg.find("<polyline"); at != std::string::npos; at = svg.find("<polyline", at + 1))
    ++lines;
  EXPECT_EQ(lines, 2U);
  EXPECT_THAT(svg, Not(HasSubstr("not available")));
}

TEST(Plot, says_what_is_not_available) {
  EXPECT_THAT(
      to_svg({.panels = {{.y = {.name = "power"}, .curves = {{"one", {{0, {}}, {1, {}}}}}}}}),
      HasSubstr(">not available<"));
  EXPECT_THAT(to_svg({.panels = {{.curves = {{"one", {{0, 1}}}, {"two", {{0, {}}}}}}}}),
              HasSubstr(">two: not available<"));
  EXPECT_THAT(to_svg({.panels = {{}}}), HasSubstr(">not available<"));
}

TEST(Plot, a_logarithmic_axis_has_equal_factors_at_equal_distances) {
  const std::string svg =
      to_svg({.x = {.logarithmic = true, .ticks = {{4, "four"}}},
              .panels = {{.y = {.logarithmic = true},
                          .curves = {{"", {{1, 1}, {4, 10}, {16, 0}, {16, 9.9}}}}}}});
  EXPECT_THAT(svg, HasSubstr("points=\"90.0,196.0 435.0,121.0\"")) << "0 is a gap";
  EXPECT_THAT(svg, HasSubstr(">1e0<"));
  EXPECT_THAT(svg, HasSubstr(">1e2<"));
  EXPECT_THAT(svg, HasSubstr(">four<"));
}

TEST(Plot, draws_something_of_whatever_it_gets) {
  for (const bool logarithmic : {false, true}) {
    for (const double value : {0.0, -1.0, 7.0}) {
      const std::string svg = to_svg(
          {.x = {.logarithmic = logarithmic},
           .panels = {{.y = {.logarithmic = logarithmic}, .curves = {{"", {{value, value}}}}}}});
      EXPECT_THAT(svg, HasSubstr("</svg>"));
      EXPECT_THAT(svg, Not(HasSubstr("nan")));
      EXPECT_THAT(svg, Not(HasSubstr("inf")));
    }
  }
}

} // namespace
} // namespace fanin::bench
