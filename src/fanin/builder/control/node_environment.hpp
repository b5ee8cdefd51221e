// What a node is handed from outside, and what all nodes must agree on of their control messages.
#pragma once

#include <cstddef>
#include <cstdint>

#include "fanin/base/clock.hpp"
#include "fanin/base/log.hpp"
#include "fanin/memory/page_pool.hpp"
#include "fanin/net/link.hpp"
#include "fanin/net/loop.hpp"
#include "fanin/wire/control.hpp"

namespace fanin::builder {

// All that connects a node with the outside. It outlives the node.
struct NodeEnvironment {
  net::Loop* loop = nullptr;
  net::TransportSet* transports = nullptr;
  memory::PagePool* control_pool = nullptr; // for messages in and out
  LogFunction log;
  std::uint64_t session = 1; // drawn at random for the process
  std::int64_t unix_ns_at_zero = 0; // UTC at time 0 of the loop's clock; 0 in virtual time
};

// How often a node reports its counters to the event manager.
inline constexpr Duration status_period = std::chrono::milliseconds{250};

// What may wait to be sent on one control connection: a peer that stops reading is given up beyond,
// and cannot take the pages of the others.
[[nodiscard]] inline std::uint64_t control_queue_bytes(const memory::PagePool& pool) {
  return 3U * pool.page_size();
}
// The least page for control messages, the same for all nodes: half of it carries the counters of
// a readout unit with so many sources, or an event that all of them lack.
[[nodiscard]] inline std::uint32_t control_page_least(std::size_t sources) {
  return static_cast<std::uint32_t>(2 * (sizeof(wire::SourceCounters) * sources + 192));
}

} // namespace fanin::builder
