#include "fanin/fabric/topology.hpp"

#include <algorithm>

#include <fmt/format.h>

namespace fanin::fabric {
namespace {

constexpr double rate_least = 1e3; // bytes per second
constexpr double rate_most = 1e14;
constexpr Duration latency_most = std::chrono::seconds{1};
constexpr std::uint32_t ports_most = 64; // of a host
constexpr std::uint32_t uplinks_most = 1024; // of a leaf

Result<> check(const TopologyOptions& options) {
  const auto wrong = [](std::string text) { return fail(ErrorKind::usage, std::move(text)); };
  if (options.hosts == 0 || options.hosts > hosts_most)
    return wrong(fmt::format("{} hosts: 1 to {} can be simulated", options.hosts, hosts_most));
  if (options.ports == 0 || options.ports > ports_most)
    return wrong(fmt::format("{} ports of a host: it has 1 to {}", options.ports, ports_most));
  const bool rate_is_good = options.link_rate >= rate_least && options.link_rate <= rate_most;
  if (!rate_is_good) return wrong("the rate of a link is 1 kB/s to 100 TB/s");
  if (options.link_latency < Duration{} || options.link_latency > latency_most)
    return wrong("the latency of a link is at most 1 s");
  if (options.shape == Shape::crossbar) return {};
  const bool spines_are_good = options.spines >= 1 && options.uplinks >= options.spines &&
                               options.uplinks % options.spines == 0 &&
                               options.uplinks <= uplinks_most;
  if (!spines_are_good)
    return wrong(fmt::format("{} uplinks of a leaf do not reach each of {} spines equally: a "
                             "multiple of the spines does, of at most {}",
                             options.uplinks, options.spines, uplinks_most));
  return {};
}

} // namespace

Result<Topology> Topology::make(const TopologyOptions& options) {
  if (auto good = check(options); !good) return std::unexpected(good.error());
  Topology made;
  made.hosts_ = options.hosts;
  made.ports_ = options.ports;
  made.host_names_ = options.host_names;
  const std::uint32_t ports = made.all_ports();
  const bool clos = options.shape == Shape::clos;
  const std::uint32_t at_leaf = options.switch_ports > 0 ? options.switch_ports
                                : clos                   ? leaf_ports_default
                                                         : ports;
  const std::uint32_t needed = (ports + at_leaf - 1) / at_leaf;
  made.leaves_ = !clos ? 1 : options.leaves > 0 ? options.leaves : needed;

  made.leaf_of_port_ = options.leaf_of_port;
  if (made.leaf_of_port_.empty()) {
    for (std::uint32_t port = 0; port < ports; ++port) made.leaf_of_port_.push_back(port / at_leaf);
  }
  std::vector<std::uint32_t> used(made.leaves_);
  for (std::uint32_t port = 0; port < ports; ++port) {
    const std::uint32_t leaf = made.leaf_of_port_[port];
    if (leaf >= made.leaves_ || ++used[leaf] > at_leaf)
      return fail(ErrorKind::usage,
                  fmt::format("{} is not connected: there is room for {} ports at {} switches, and "
                              "{} hosts have {}",
                              made.port_name(port), at_leaf * made.leaves_, made.leaves_,
                              made.hosts_, ports));
  }
  if (clos) {
    made.spines_ = options.spines;
    made.uplinks_ = options.uplinks;
  }
  made.outputs_.assign(made.leaves_ + made.spines_, 0);
  for (const std::uint32_t leaf : made.leaf_of_port_) made.links_.push_back({.to = leaf});
  for (const std::uint32_t leaf : made.leaf_of_port_)
    made.links_.push_back({.to = no_link, .output = made.outputs_[leaf]++});
  for (std::uint32_t leaf = 0; leaf < made.leaves_; ++leaf) {
    for (std::uint32_t i = 0; i < made.uplinks_; ++i)
      made.links_.push_back(
          {.to = made.leaves_ + i % made.spines_, .output = made.outputs_[leaf]++});
  }
  for (std::uint32_t spine = 0; spine < made.spines_; ++spine) {
    for (std::uint32_t i = 0; i < made.leaves_ * (made.uplinks_ / made.spines_); ++i)
      made.links_.push_back({.to = i / (made.uplinks_ / made.spines_),
                             .output = made.outputs_[made.leaves_ + spine]++});
  }
  return made;
}

LinkRange Topology::towards(std::uint32_t at_switch, std::uint32_t port) const {
  const std::uint32_t leaf = leaf_of_port_[port];
  if (at_switch == leaf) return {.first = link_to(port), .count = 1};
  const std::uint32_t up = 2 * all_ports();
  if (is_leaf(at_switch)) return {.first = up + at_switch * uplinks_, .count = uplinks_};
  const std::uint32_t down = up + leaves_ * uplinks_;
  const std::uint32_t parallel = uplinks_ / spines_;
  const std::uint32_t spine = at_switch - leaves_;
  return {.first = down + (spine * leaves_ + leaf) * parallel, .count = parallel};
}

std::string Topology::port_name(std::uint32_t port) const {
  const std::uint32_t host = port / ports_;
  const std::string name = host_names_.empty() ? fmt::format("host {}", host) : host_names_[host];
  return ports_ == 1 ? name : fmt::format("port {} of {}", port % ports_, name);
}

std::uint32_t Topology::link_of_route(std::uint32_t at_switch, std::uint32_t port,
                                      std::uint64_t route) const {
  const LinkRange range = towards(at_switch, port);
  if (range.count == 1) return range.first;
  const std::uint64_t which = is_leaf(at_switch) ? route : route / spines_;
  return range.first + static_cast<std::uint32_t>(which % range.count);
}

std::string Topology::name(std::uint32_t link) const {
  const std::uint32_t ports = all_ports();
  const char* leaf = spines_ == 0 ? "switch" : "leaf";
  if (link < ports) return fmt::format("{} to {} {}", port_name(link), leaf, leaf_of_port_[link]);
  if (link < 2 * ports)
    return fmt::format("{} {} to {}", leaf, leaf_of_port_[link - ports], port_name(link - ports));
  const std::uint32_t up = link - 2 * ports;
  if (up < leaves_ * uplinks_)
    return fmt::format("leaf {} to spine {}", up / uplinks_, up % uplinks_ % spines_);
  const std::uint32_t down = up - leaves_ * uplinks_;
  return fmt::format("spine {} to leaf {}", down / (leaves_ * (uplinks_ / spines_)),
                     links_[link].to);
}

} // namespace fanin::fabric
