// What fanin bench can measure, a file each.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "fanin/base/result.hpp"
#include "fanin/executive/host_list.hpp"
#include "fanin/net/url.hpp"
#include "reading.hpp"

namespace CLI {
class App;
}

namespace fanin::command {

// --nodes, --rails, --hosts and --testbed, of benches of many nodes.
struct HostArguments {
  std::string nodes; // NxM
  std::string hosts;
  bool testbed = false;
  std::size_t rails = 1;
  bool full_duplex = false;
};
void add_host_options(CLI::App& command, HostArguments& arguments);
// --nodes into the two numbers. Errors: usage.
[[nodiscard]] Result<> read_nodes(const HostArguments& arguments, std::size_t& senders,
                                  std::size_t& receivers);
// Null: all on this host. Errors: usage; too few hosts, or addresses of one; full duplex without
// hosts or with other numbers of units.
[[nodiscard]] Result<std::shared_ptr<const executive::HostList>>
read_host_list(const HostArguments& arguments, std::size_t senders, std::size_t receivers);

// The TCP congestion control of all contenders: `asked` (--congestion), that of the address, the
// testbed's, the host's; the first that there is. It is put into the address.
[[nodiscard]] std::string share_congestion(net::Url& url, const std::string& asked,
                                           const executive::HostList* hosts, Reading& reading);
// --stolen-max, in percent.
void add_stolen_option(CLI::App& command, double& percent);
void add_message_benches(CLI::App& bench, int& status); // stream, roundtrip, pubsub, nxn
void add_evb(CLI::App& bench, int& status);

} // namespace fanin::command
