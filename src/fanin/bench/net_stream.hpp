// The rungs of the ladder between the bare loop and the event builder: the same pages through a
// Transport and a Loop, then the same payload as data blocks, cut from fragment queues. N senders,
// M receivers, a process each.
#pragma once

#include <cstddef>
#include <cstdint>

#include "fanin/base/clock.hpp"
#include "fanin/base/result.hpp"
#include "fanin/bench/processes.hpp"
#include "fanin/net/loop.hpp"
#include "fanin/net/url.hpp"

namespace fanin::bench {

struct StreamOptions {
  std::size_t senders = 1;
  std::size_t receivers = 1;
  net::Url url;
  std::uint32_t size = 0;     // bytes of payload of one record or fragment
  std::uint64_t message = 0;  // bytes of one message, about
  std::uint64_t send_set = 0; // bytes that each sender cycles through
  std::uint64_t receive_set = 0;
  std::uint32_t source_page = 1U << 20; // blocks: of the sources' pools
  std::uint32_t batch_events = 1024;    // blocks: fragments in one message, at most
  bool checksum = true;
  net::WaitPolicy wait = net::WaitPolicy::poll;
  Duration warmup{};
  Duration duration{};
};

// Pages of records, each one message: what the transport costs.
[[nodiscard]] Result<Sample> run_page_stream(const StreamOptions& options);
// Data blocks of emulated sources, without an event manager: what the source and the framing cost.
[[nodiscard]] Result<Sample> run_block_stream(const StreamOptions& options);

} // namespace fanin::bench
