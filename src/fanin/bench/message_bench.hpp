// fanin bench stream, roundtrip, pubsub and nxn: messages of one size after the other, through
// fanin's sockets and through their peers, in turns.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "fanin/base/json.hpp"
#include "fanin/base/result.hpp"
#include "fanin/bench/ends.hpp"
#include "fanin/bench/measure.hpp"
#include "fanin/bench/spec.hpp"
#include "fanin/executive/host_list.hpp"

namespace fanin::bench {

struct MessageBenchOptions {
  // Peer, size and page are set for each contender; polling becomes blocking where there are more
  // processes than cores: those that poll would take the core from those that have work.
  Spec spec;
  std::vector<std::uint32_t> sizes;
  std::vector<std::string> peers; // "raw", "fair", "memcpy", "zeromq", "mpi"
  bool under_load = false; // round trip: fanin a second time, beside a stream
  std::optional<net::Url> other_host; // where the listeners are
  // nxn: the hosts of senders and receivers, as those of readout and builder units.
  std::shared_ptr<const executive::HostList> hosts;
  // nxn: also with a sender and a receiver on each host of this list; null: not.
  std::shared_ptr<const executive::HostList> full_duplex;
  Window window{std::chrono::milliseconds{200}, std::chrono::seconds{1}}; // of one measurement
  RoundOptions rounds;
};

// The result object: settings, machine, results[], and remarks[] on peers that are not here.
// Errors: usage, and what goes wrong.
[[nodiscard]] Result<json::Value> bench_messages(const MessageBenchOptions& options,
                                                 const Progress& progress);

// The same, human-readable: a line for each size, a column for each contender.
[[nodiscard]] std::string message_table(const json::Value& result);
// The same as a drawing (SVG): a line for each contender, over sizes. Also of bench_evb_sizes().
[[nodiscard]] std::string plot_over_sizes(const json::Value& result);

} // namespace fanin::bench
