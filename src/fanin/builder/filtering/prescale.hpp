// Which events of a stream its prescale keeps.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "fanin/base/identity.hpp"
#include "fanin/base/random.hpp"
#include "fanin/storage/layout.hpp"

namespace fanin::builder {

// A function of run, event and stream alone, so that a repetition decides alike. It scatters the
// events that it keeps, since what happens in a detector may have the rhythm of any counter.
[[nodiscard]] constexpr bool prescale_keeps(RunNumber run, EventNumber event, std::size_t stream,
                                            std::uint32_t prescale) {
  const std::uint64_t seed = splitmix64((std::uint64_t{run} << 32) + stream);
  return prescale <= 1 || splitmix64(seed ^ event) % prescale == 0;
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
