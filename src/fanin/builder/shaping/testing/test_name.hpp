// The name of a policy as a part of a test's name.
#pragma once

#include <algorithm>
#include <string>

#include "fanin/builder/shaping/shaping.hpp"

namespace fanin::builder::shaping::testing {

inline std::string test_name(Policy policy) {
  std::string text{name(policy)};
  std::ranges::replace(text, '-', '_');
  return text;
}

} // namespace fanin::builder::shaping::testing
