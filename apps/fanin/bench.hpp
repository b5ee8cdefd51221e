// What fanin bench can measure, a file each.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "fanin/base/clock.hpp"
#include "fanin/base/result.hpp"
#include "fanin/bench/measure.hpp"
#include "fanin/executive/host_list.hpp"
#include "fanin/net/url.hpp"
#include "reading.hpp"

namespace CLI {
class App;
}

namespace fanin::command {

// What all benches can be told, as the user wrote it; empty: the default.
struct BenchArguments {
  std::string nodes; // NxM
  std::size_t senders = 1;
  std::size_t receivers = 1;
  std::string hosts;
  bool testbed = false;
  std::size_t rails = 1;
  bool full_duplex = false;
  std::string url = "tcp";
  std::string sizes;
  std::string duration = "1s";
  std::size_t runs = 3;
  std::string wait = "poll";
  std::string congestion; // empty: the host's, or the testbed's
  double stolen_max = 5; // percent
  std::string shaping = "none";
  std::string rate;
  std::string json;
  std::string plot;
  bool quiet = false;
};
inline constexpr const char* shapings = "none, random, linear-shift, barrel-shifter or tokens";
inline constexpr Duration shortest_sample = std::chrono::milliseconds{50}; // of a measurement

// --duration, --runs, --wait, --congestion, --stolen-max, --json, --plot and --quiet.
void add_bench_options(CLI::App& command, BenchArguments& arguments);
// --rus, --bus, --nodes, --rails, --hosts, --testbed and --full-duplex, of benches of many nodes.
void add_host_options(CLI::App& command, BenchArguments& arguments);

// --nodes, --hosts and --testbed into the two numbers and the list. Null: all on this host. Errors:
// usage; too few hosts, or addresses of one; full duplex without hosts or with other numbers of
// units.
[[nodiscard]] Result<std::shared_ptr<const executive::HostList>>
read_hosts(BenchArguments& arguments);
// The TCP congestion control of all contenders: --congestion, that of the address, the testbed's,
// the host's; the first that there is. It is put into the address.
[[nodiscard]] std::string share_congestion(net::Url& url, const BenchArguments& arguments,
                                           const executive::HostList* hosts, Reading& reading);
void read_rounds(const BenchArguments& arguments, Duration& duration, bench::RoundOptions& rounds,
                 Reading& reading);
[[nodiscard]] bench::Progress progress_of(const BenchArguments& arguments);

void add_message_benches(CLI::App& bench, int& status); // stream, roundtrip, pubsub, nxn
void add_evb(CLI::App& bench, int& status);

} // namespace fanin::command
