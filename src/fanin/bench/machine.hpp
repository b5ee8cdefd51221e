// What a figure was measured on.
#pragma once

#include <cstdint>
#include <string>

#include "fanin/base/json.hpp"

namespace fanin::bench {

// Processor, cores, kernel, memory, fanin's version, commit and flags, load before the start.
[[nodiscard]] json::Value describe_machine();

// Processor time of all cores since the start of the host, in ticks.
struct ProcessorTime {
  std::uint64_t all = 0;
  std::uint64_t stolen = 0; // wanted, and given to other machines
  std::uint64_t idle = 0;
};
[[nodiscard]] ProcessorTime processor_time();
// A share of it.
[[nodiscard]] double share_between(const ProcessorTime& before, const ProcessorTime& after,
                                   std::uint64_t ProcessorTime::* which);

// What TCP connections have that ask for nothing: those of other libraries.
[[nodiscard]] std::string host_congestion();

} // namespace fanin::bench
