// How large each pool of each node is, and whether that is enough for the configured rate.
// Every size is a sum of what may hold pages at once.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "fanin/base/export.hpp"
#include "fanin/base/result.hpp"
#include "fanin/config/configuration.hpp"
#include "fanin/net/registry.hpp"

namespace fanin::executive {

struct PoolPlan {
  std::uint32_t page_size = 0;
  std::uint32_t pages = 0;
  [[nodiscard]] std::uint64_t bytes() const { return std::uint64_t{page_size} * pages; }
};

// Sizes that do not follow from the configuration, in bytes. Event builders in tests have small
// pages, so that a short run fills many.
struct PageSizes {
  std::uint32_t control = 0; // 0: by the number of nodes
  std::uint32_t source_least = 64U << 10;
  std::uint32_t source_most = 0; // 0: as of data
  std::uint32_t metadata = 0; // 0: by what a batch takes
  std::uint64_t metadata_least = 4U << 20; // of a readout unit
};

struct NodePlan {
  PoolPlan control;               // messages to and from other nodes
  std::vector<PoolPlan> sources;  // readout unit: payload, each source its own
  PoolPlan metadata; // readout unit: headers and tables of what was sent and not cleared
  PoolPlan receive; // builder unit: what is under construction or in storage; filter unit: events
  PoolPlan published; // builder unit: sampled events on their way to readers
  PoolPlan readers; // builder unit: what these say
  bool receive_shared = false; // filter units on this host read it
  std::uint32_t set_aside = 0; // of its pages, for batches that filter units take long for
  std::uint32_t posted = 0; // of its pages, those that the network holds ready for messages
  std::uint32_t window = 0; // readout unit: event numbers that a source may hold
  double bytes_per_s = 0; // expected payload; 0: not known
  std::uint64_t needed = 0; // bytes of payload for that rate
  std::uint64_t queues = 0; // bytes outside of pools, for the numbers in the window; what waits for
                            // readers of sampled events

  [[nodiscard]] std::uint64_t payload() const; // of its pools
  [[nodiscard]] std::uint64_t pools() const;
  [[nodiscard]] std::uint64_t total() const; // with the queues
};

// One for each of the configuration's nodes. Errors: usage, with file, line, key and remedy, where
// pools are too small to work at all or for the configured rate.
[[nodiscard]] FANIN_INTERNAL_API Result<std::vector<NodePlan>>
plan_memory(const config::Configuration& configuration, const net::TransportRegistry& transports,
            const PageSizes& sizes = {});

// Of one source, in bytes per second; 0: not known. From `expected`, or of the emulator from its
// sizes and the rate of the trigger or its own.
[[nodiscard]] double expected_rate(const config::Configuration& configuration,
                                   const config::Source& source);

// How long a readout unit must be able to keep everything: the configured `hold`, and, where nodes
// are on several hosts, the time after which a dead one is noticed. On one host the kernel says so
// at once.
[[nodiscard]] Duration hold_time(const config::Configuration& configuration);

// How many batches of a builder unit, a node, filter units can have at the same time.
[[nodiscard]] std::uint64_t batches_at_filters(const config::Configuration& configuration,
                                               const config::Node& builder);

// How long a built batch waits for its filter unit; 0: there is none.
[[nodiscard]] Duration filter_latency(const config::Configuration& configuration);

} // namespace fanin::executive
