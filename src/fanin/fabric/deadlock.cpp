#include "fanin/fabric/deadlock.hpp"

#include <algorithm>

#include <fmt/format.h>

namespace fanin::fabric {

LinkDependencies::LinkDependencies(std::span<const Link> links)
    : links_(links), asked_(links.size()) {}

void LinkDependencies::add(std::uint32_t from, std::uint32_t to) {
  const std::uint32_t at_switch = links_[from].to;
  const std::uint32_t output = links_[to].output;
  if (outputs_.size() <= at_switch) outputs_.resize(at_switch + 1U);
  auto& outputs = outputs_[at_switch];
  if (outputs.size() <= output) outputs.resize(output + 1U, no_link);
  outputs[output] = to;
  auto& asked = asked_[from];
  if (asked.size() <= output) asked.resize(output + 1U);
  asked[output] = true;
}

// Depth first; a link that is found again on the path closes a cycle.
std::vector<std::uint32_t> LinkDependencies::cycle() const {
  enum class Visit : std::uint8_t { never, on_path, done };
  std::vector<Visit> visits(links_.size());
  std::vector<std::uint32_t> path;
  std::vector<std::uint32_t> next_output(links_.size());
  for (std::uint32_t start = 0; start < links_.size(); ++start) {
    if (visits[start] != Visit::never) continue;
    path = {start};
    visits[start] = Visit::on_path;
    while (!path.empty()) {
      const std::uint32_t link = path.back();
      const auto& asked = asked_[link];
      std::uint32_t& output = next_output[link];
      while (output < asked.size() && !asked[output]) ++output;
      if (output == asked.size()) {
        visits[link] = Visit::done;
        path.pop_back();
        continue;
      }
      const std::uint32_t to = outputs_[links_[link].to][output++];
      if (visits[to] == Visit::on_path) return {std::ranges::find(path, to), path.end()};
      if (visits[to] == Visit::done) continue;
      visits[to] = Visit::on_path;
      path.push_back(to);
    }
  }
  return {};
}

LinkDependencies dependencies(const Topology& topology) {
  const auto links = topology.links();
  LinkDependencies all(links);
  std::vector<std::uint32_t> port_of(topology.switches(), no_link); // one of those at a switch
  for (std::uint32_t port = 0; port < topology.all_ports(); ++port)
    port_of[links[Topology::link_from(port)].to] = port;
  std::vector<std::uint32_t> reached_for(links.size(), no_link); // the last destination
  std::vector<std::uint32_t> to_follow;
  for (const std::uint32_t destination : port_of) { // routes to others at its switch are the same
    if (destination == no_link) continue;
    const auto reach = [&](std::uint32_t at_switch, std::uint32_t from) {
      const LinkRange range = topology.towards(at_switch, destination);
      for (std::uint32_t link = range.first; link < range.first + range.count; ++link) {
        if (topology.ends_at_port(link)) continue;
        if (from != no_link) all.add(from, link);
        if (reached_for[link] == destination) continue;
        reached_for[link] = destination;
        to_follow.push_back(link);
      }
    };
    for (std::uint32_t at_switch = 0; at_switch < port_of.size(); ++at_switch)
      if (port_of[at_switch] != no_link) reach(at_switch, no_link);
    while (!to_follow.empty()) {
      const std::uint32_t link = to_follow.back();
      to_follow.pop_back();
      reach(links[link].to, link);
    }
  }
  return all;
}

Result<> check_deadlock(const LinkDependencies& dependencies,
                        const std::function<std::string(std::uint32_t)>& name) {
  const auto cycle = dependencies.cycle();
  if (cycle.empty()) return {};
  std::string links;
  for (const std::uint32_t link : cycle) links += fmt::format("{}, then ", name(link));
  return fail(ErrorKind::usage,
              fmt::format("packets can wait for each other for ever (a deadlock), each on one of "
                          "these links and for the next one: {}{}. Choose routes without such a "
                          "cycle",
                          links, name(cycle.front())));
}

} // namespace fanin::fabric
