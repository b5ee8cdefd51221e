// Data of a readout unit travel to a builder unit over as many rails as there are, each source over
// one of them, since order matters within a source only. A lane is such a connection over one rail.
#pragma once

#include <cstddef>

#include "fanin/base/identity.hpp"

namespace fanin::builder {

inline constexpr std::size_t rails_max = 8; // of a node

struct Lane {
  NodeId readout = 0;
  std::size_t index = 0;
  std::size_t count = 1; // of the readout unit's lanes to this builder unit

  // By position among the sources of the readout unit.
  [[nodiscard]] bool carries(std::size_t source) const {
    return count == 1 || source % count == index;
  }
  [[nodiscard]] friend bool operator==(const Lane&, const Lane&) = default;
};

} // namespace fanin::builder
