// The baselines: what sockets give without a library. N processes fill pages of records and write
// them to M processes in turn, which read and walk them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "fanin/base/clock.hpp"
#include "fanin/base/result.hpp"
#include "fanin/bench/ends.hpp"
#include "fanin/bench/processes.hpp"
#include "fanin/net/url.hpp"

namespace fanin::bench {

enum class Fill : std::uint8_t {
  emulated, // what a source makes: a record of an event
  copied    // from elsewhere (payload.hpp)
};

struct BareOptions {
  std::size_t senders = 1;
  std::size_t receivers = 1;
  std::uint32_t size = 0;      // bytes of payload of one record
  std::uint64_t page = 0;      // bytes of one write, about
  std::uint64_t send_set = 0;  // bytes that each sender cycles through; at least one page
  std::uint64_t receive_set = 0;
  bool checksum = false; // CRC32C at both ends
  bool read = false;     // receivers read every byte
  Fill fill = Fill::emulated;
  bool spin = false;       // asks the socket again and again instead of blocking
  bool to_all = false;     // each page to every receiver, not to one in turn
  net::Url url{.scheme = "tcp", .host = {}, .port = 0, .options = {}};
  std::string congestion = "cubic";
  Duration warmup{};
  Duration duration{};
};

[[nodiscard]] Ends bare_tcp_ends(const BareOptions& options);
[[nodiscard]] Result<Sample> run_bare_tcp(const BareOptions& options);

} // namespace fanin::bench
