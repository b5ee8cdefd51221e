// nxn with traffic shaping, as roles of a process: on its own loop and transport, or in virtual
// time. Senders and receivers follow the order and the grants of event building (builder/shaping),
// over data connections of their own. A message is a carrier, filled with records (record.hpp).
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "fanin/base/export.hpp"
#include "fanin/bench/sockets_process.hpp"
#include "fanin/memory/page_pool.hpp"
#include "fanin/net/loop.hpp"
#include "fanin/net/transport.hpp"

namespace fanin::bench {

// Of one role. Messages under way hold its pages.
struct ShapedPools {
  std::unique_ptr<memory::PagePool> data;
  std::unique_ptr<memory::PagePool> control;

  // `shares_memory`: as its transport does. Errors: exhausted.
  [[nodiscard]] static Result<ShapedPools> of_sender(const Spec& spec, memory::ArenaOptions arena,
                                                     bool shares_memory);
  [[nodiscard]] static Result<ShapedPools> of_receiver(const Spec& spec, memory::ArenaOptions arena,
                                                       bool shares_memory);
};

// Where a role lives. All of it outlives the role.
struct ShapedPlace {
  net::Loop& loop;
  net::Transport& transport;
  ShapedPools& pools;
};

// Errors: usage: a record is larger than a carrier.
[[nodiscard]] Result<> check_shaped(const Spec& spec);

// Gives the real address in `url`, which is where to listen.
[[nodiscard]] MadeRole shaped_receiver(ShapedPlace place, const Spec& spec, net::Url& url,
                                       ProcessStats& stats);
// `urls`: of each receiver over each rail.
[[nodiscard]] MadeRole shaped_sender(ShapedPlace place, const Spec& spec, std::size_t index,
                                     const std::vector<net::Url>& urls, ProcessStats& stats);

} // namespace fanin::bench
