// Whether worms that wait for each other can wait for ever. While a worm holds a link it may ask
// for the next one of its route: that link depends on this one. Without a cycle of such
// dependencies there is no deadlock; with one, worms whose buffers are full may close it.
//
// Source: W. J. Dally, C. L. Seitz, "Deadlock-Free Message Routing in Multiprocessor
// Interconnection Networks", IEEE Trans. Comput. C-36 (1987) 547.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "fanin/base/result.hpp"
#include "fanin/fabric/topology.hpp"

namespace fanin::fabric {

class LinkDependencies {
public:
  // `links` must outlive it.
  explicit LinkDependencies(std::span<const Link> links);

  // A worm that holds the link `from` may ask for `to`, which leaves the switch at its end.
  void add(std::uint32_t from, std::uint32_t to);
  // The links of a cycle: a worm on one of them may ask for the one after it, and on the last one
  // for the first. Empty: there is none.
  [[nodiscard]] std::vector<std::uint32_t> cycle() const;

private:
  std::span<const Link> links_;
  std::vector<std::uint32_t> input_; // of each link, which one of the switch at its end it is
  std::vector<std::vector<std::uint32_t>> inputs_; // of each switch
  std::vector<std::vector<bool>> asked_by_; // of each link, the inputs of the switch before it
  std::vector<std::uint32_t> switch_before_; // of each link for which one asks
};

// Between switches, for all routes of a network, whatever its routing. Links from and to ports are
// in no cycle.
[[nodiscard]] LinkDependencies dependencies(const Topology& topology);

// Errors: usage, with the names of the links of a cycle.
[[nodiscard]] Result<> check_deadlock(const LinkDependencies& dependencies,
                                      const std::function<std::string(std::uint32_t)>& name);

} // namespace fanin::fabric
