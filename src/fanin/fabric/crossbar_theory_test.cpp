#include "fanin/fabric/crossbar_theory.hpp"

#include <array>

#include <gtest/gtest.h>

namespace fanin::fabric {
namespace {

// Table I of Karol, Hluchyj and Morgan.
TEST(CrossbarTheory, is_the_published_table) {
  constexpr std::array published{1.0, 0.75, 0.6825, 0.6553, 0.6399, 0.6302, 0.6234, 0.6184};
  for (std::size_t ports = 1; ports <= published.size(); ++ports)
    EXPECT_NEAR(crossbar_saturation(ports), published[ports - 1], 0.0001) << ports;
}

TEST(CrossbarTheory, falls_to_its_limit) {
  EXPECT_NEAR(crossbar_saturation(16), 0.6016, 0.0001);
  EXPECT_NEAR(crossbar_saturation_limit(), 0.5858, 0.0001);
  EXPECT_GT(crossbar_saturation(crossbar_exact_max), crossbar_saturation_limit());
}

} // namespace
} // namespace fanin::fabric
