// Decides where data blocks are cut so that they fill carriers completely, across batches and
// sources. The barrel shifter needs that, since all its slots have the same length.
#pragma once

#include <algorithm>
#include <cstdint>

#include "fanin/wire/data_block.hpp"

namespace fanin::builder::shaping {

// The blocks for one builder unit, in the order in which they are sent.
class CarrierFill {
public:
  explicit CarrierFill(std::uint32_t carrier) : carrier_(carrier), rest_(carrier) {}

  // A smaller rest of a carrier is not worth another message.
  static constexpr std::uint32_t rest_least = 256;
  // Most blocks of one source and one batch in one carrier.
  static constexpr std::uint32_t blocks_most = 4;

  struct Limits { // of the next block
    std::uint32_t entries = 0;
    std::uint32_t payload = 0;
  };
  // So many fragments are left of the source in its batch, and so many bytes of the first of them.
  // The table takes at most half of the rest; a fragment that is too large for it is cut.
  [[nodiscard]] Limits limits(std::uint32_t fragments, std::uint32_t first) const {
    const std::uint32_t half = std::max(rest_ / 2, head(1));
    const std::uint32_t entries = std::min(fragments, (half - head(0)) / (head(1) - head(0)));
    const std::uint32_t payload = rest_ - head(entries);
    return first > payload ? Limits{1, rest_ - head(1)} : Limits{entries, payload};
  }
  // A block of so many bytes is cut. True: nothing is added to its carrier.
  [[nodiscard]] bool add(std::uint32_t bytes) {
    rest_ -= bytes;
    if (rest_ >= rest_least) return false;
    begin();
    return true;
  }
  // The next block begins a carrier.
  void begin() { rest_ = carrier_; }

private:
  static constexpr std::uint32_t head(std::uint32_t entries) {
    return static_cast<std::uint32_t>(sizeof(wire::DataBlockHeader) +
                                      entries * sizeof(wire::FragmentEntry));
  }
  std::uint32_t carrier_;
  std::uint32_t rest_;
};

} // namespace fanin::builder::shaping
