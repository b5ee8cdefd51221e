// Which links a simulated network has, and which of them lead from where to where.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "fanin/base/result.hpp"
#include "fanin/fabric/time.hpp"

namespace fanin::fabric {

enum class Shape : std::uint8_t {
  crossbar, // one switch
  clos // leaf switches, each with links to all spine switches
};

inline constexpr std::uint32_t leaf_ports_default = 8; // of a leaf, for hosts

struct TopologyOptions {
  Shape shape = Shape::crossbar;
  std::uint32_t hosts = 2;
  std::uint32_t ports = 1; // of each host
  std::uint32_t switch_ports = 0; // of a crossbar, or for hosts at a leaf; 0: as many as needed
  std::uint32_t uplinks = 8; // of a leaf: a multiple of the spines
  std::uint32_t spines = 8;
  std::uint32_t leaves = 0; // 0: as many as needed
  double link_rate = 1.25e9; // bytes per second, in each direction
  Duration link_latency{}; // of a link and of the switch at its end
  std::vector<std::string> host_names; // for messages; empty: they have numbers
  // The leaf of each port (port k of host h is h * ports + k); empty: in their order.
  std::vector<std::uint32_t> leaf_of_port;
};

inline constexpr std::uint32_t no_link = ~0U;
inline constexpr std::uint32_t hosts_most = 1U << 16;

struct Link {
  std::uint32_t to = no_link; // the switch at its end; no_link: a port
  std::uint32_t output = 0; // which of the outputs of the switch that it leaves
};

struct LinkRange {
  std::uint32_t first = 0;
  std::uint32_t count = 0;
};

// Links are numbered: first those from the ports into the network, then those to the ports, then
// those between switches.
class Topology {
public:
  // Errors: usage, naming what is unconnected or out of range, without the name of the key.
  [[nodiscard]] static Result<Topology> make(const TopologyOptions& options);

  [[nodiscard]] std::uint32_t hosts() const { return hosts_; }
  [[nodiscard]] std::uint32_t ports() const { return ports_; } // of each host
  [[nodiscard]] std::uint32_t all_ports() const { return hosts_ * ports_; }
  [[nodiscard]] std::uint32_t switches() const {
    return static_cast<std::uint32_t>(outputs_.size());
  }
  [[nodiscard]] std::span<const Link> links() const { return links_; }
  [[nodiscard]] std::uint32_t outputs(std::uint32_t at_switch) const { return outputs_[at_switch]; }

  [[nodiscard]] static std::uint32_t link_from(std::uint32_t port) { return port; }
  [[nodiscard]] std::uint32_t link_to(std::uint32_t port) const { return all_ports() + port; }
  [[nodiscard]] bool ends_at_port(std::uint32_t link) const { return links_[link].to == no_link; }
  // The links that lead from a switch towards a port; any of them will do.
  [[nodiscard]] LinkRange towards(std::uint32_t at_switch, std::uint32_t port) const;
  // One of them, for a number of a route: numbers one after the other use all uplinks of a leaf in
  // turns, and the links down to a leaf too.
  [[nodiscard]] std::uint32_t link_of_route(std::uint32_t at_switch, std::uint32_t port,
                                            std::uint64_t route) const;
  // "port 3 to leaf 1": for messages and tables.
  [[nodiscard]] std::string name(std::uint32_t link) const;

private:
  Topology() = default;
  [[nodiscard]] bool is_leaf(std::uint32_t at_switch) const { return at_switch < leaves_; }
  [[nodiscard]] std::string port_name(std::uint32_t port) const;

  std::vector<std::string> host_names_;
  std::uint32_t hosts_ = 0;
  std::uint32_t ports_ = 0;
  std::uint32_t leaves_ = 0; // switches 0 to leaves_, then the spines; of a crossbar 1
  std::uint32_t spines_ = 0;
  std::uint32_t uplinks_ = 0;
  std::vector<std::uint32_t> leaf_of_port_;
  std::vector<Link> links_;
  std::vector<std::uint32_t> outputs_; // of each switch
};

} // namespace fanin::fabric
