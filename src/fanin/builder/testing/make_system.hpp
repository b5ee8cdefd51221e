// A small system, for tests.
#pragma once

#include <chrono>
#include <cstddef>

#include <fmt/format.h>

#include "fanin/builder/system.hpp"

namespace fanin::builder::testing {

// `readouts` x `builders` with `sources` on each readout unit, ids from 1 on.
[[nodiscard]] inline System make_system(std::size_t readouts, std::size_t builders,
                                        std::size_t sources = 1) {
  System system;
  for (std::size_t i = 0; i < readouts; ++i) {
    system.readout_units.push_back(fmt::format("ru{}", i));
    for (std::size_t k = 0; k < sources; ++k) {
      const auto id = static_cast<SourceId>(i * sources + k + 1);
      system.sources.push_back({id, fmt::format("source{}", id), static_cast<NodeId>(i), true});
    }
  }
  for (std::size_t i = 0; i < builders; ++i) system.builder_units.push_back(fmt::format("bu{}", i));
  system.rails = 2;
  system.data_page = 32U << 10;
  system.batch_events = 64;
  system.batch_size = 64U << 10;
  system.latency = Duration{0};
  system.event_deadline = std::chrono::milliseconds{200};
  system.grace = std::chrono::milliseconds{40};
  system.dead_after = std::chrono::seconds{2};
  return system;
}

} // namespace fanin::builder::testing
