// The baselines: what sockets give without a library. N processes fill pages of records and write
// them to M processes in turn, which read and walk them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "fanin/base/clock.hpp"
#include "fanin/base/result.hpp"
#include "fanin/bench/processes.hpp"

namespace fanin::bench {

struct BareOptions {
  std::size_t senders = 1;
  std::size_t receivers = 1;
  std::uint32_t size = 0;      // bytes of payload of one record
  std::uint64_t page = 0;      // bytes of one write, about
  std::uint64_t send_set = 0;  // bytes that each sender cycles through; at least one page
  std::uint64_t receive_set = 0;
  bool checksum = false; // CRC32C at both ends
  std::string congestion = "cubic";
  Duration warmup{};
  Duration duration{};
};

[[nodiscard]] Result<Sample> run_bare_tcp(const BareOptions& options);

} // namespace fanin::bench
