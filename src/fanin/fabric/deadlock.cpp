#include "fanin/fabric/deadlock.hpp"

#include <algorithm>
#include <iterator>

#include <fmt/format.h>

namespace fanin::fabric {

LinkDependencies::LinkDependencies(std::span<const Link> links)
    : links_(links),
      input_(links.size()),
      asked_by_(links.size()),
      switch_before_(links.size(), no_link) {
  for (std::uint32_t link = 0; link < links.size(); ++link) {
    const std::uint32_t at_switch = links[link].to;
    if (at_switch == no_link) continue;
    if (inputs_.size() <= at_switch) inputs_.resize(at_switch + 1U);
    input_[link] = static_cast<std::uint32_t>(inputs_[at_switch].size());
    inputs_[at_switch].push_back(link);
  }
}

void LinkDependencies::add(std::uint32_t from, std::uint32_t to) {
  const std::uint32_t at_switch = links_[from].to;
  auto& asked_by = asked_by_[to];
  if (asked_by.empty()) asked_by.resize(inputs_[at_switch].size());
  switch_before_[to] = at_switch;
  asked_by[input_[from]] = true;
}

// Depth first, from a link to those that ask for it; one that is found again on the path closes a
// cycle.
std::vector<std::uint32_t> LinkDependencies::cycle() const {
  enum class Visit : std::uint8_t { never, on_path, done };
  std::vector<Visit> visits(links_.size());
  std::vector<std::uint32_t> next_input(links_.size());
  std::vector<std::uint32_t> path;
  for (std::uint32_t start = 0; start < links_.size(); ++start) {
    if (visits[start] != Visit::never) continue;
    path = {start};
    visits[start] = Visit::on_path;
    while (!path.empty()) {
      const std::uint32_t link = path.back();
      const auto& asked_by = asked_by_[link];
      std::uint32_t& input = next_input[link];
      while (input < asked_by.size() && !asked_by[input]) ++input;
      if (input == asked_by.size()) {
        visits[link] = Visit::done;
        path.pop_back();
        continue;
      }
      const std::uint32_t from = inputs_[switch_before_[link]][input++];
      if (visits[from] == Visit::on_path)
        return {path.rbegin(), std::make_reverse_iterator(std::ranges::find(path, from))};
      if (visits[from] == Visit::done) continue;
      visits[from] = Visit::on_path;
      path.push_back(from);
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
