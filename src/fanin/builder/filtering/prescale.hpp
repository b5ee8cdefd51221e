// Which events of a stream its prescale keeps.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "fanin/base/identity.hpp"
#include "fanin/storage/layout.hpp"

namespace fanin::builder {

// A function of run, event and stream alone, so that a repetition decides alike. It scatters the
// events that it keeps, since what happens in a detector may have the rhythm of any counter.
[[nodiscard]] constexpr bool prescale_keeps(RunNumber run, EventNumber event, std::size_t stream,
                                            std::uint32_t prescale) {
  const auto mix = [](std::uint64_t z) { // splitmix64
    z += 0x9e3779b97f4a7c15U;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9U;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebU;
    return z ^ (z >> 31);
  };
  const std::uint64_t seed = mix((std::uint64_t{run} << 32) + stream);
  return prescale <= 1 || mix(seed ^ event) % prescale == 0;
}

// Of the streams that want an event, those whose prescale keeps it.
[[nodiscard]] inline std::uint32_t prescaled(const std::vector<storage::StreamInfo>& streams,
                                             RunNumber run, EventNumber event,
                                             std::uint32_t wanted) {
  std::uint32_t kept = 0;
  for (std::size_t i = 0; i < streams.size(); ++i) {
    if ((wanted >> i & 1U) == 0) continue;
    if (prescale_keeps(run, event, i, streams[i].prescale)) kept |= 1U << i;
  }
  return kept;
}

} // namespace fanin::builder
