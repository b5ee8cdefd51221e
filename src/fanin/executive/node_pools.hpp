// The memory of one node, as planned.
#pragma once

#include <memory>
#include <vector>

#include "fanin/base/export.hpp"
#include "fanin/base/result.hpp"
#include "fanin/executive/memory_plan.hpp"
#include "fanin/memory/page_pool.hpp"

namespace fanin::executive {

// Thread: the node's. Outlives the node, and the transports of its process, which may hold pages.
struct FANIN_INTERNAL_API NodePools {
  std::unique_ptr<memory::PagePool> control; // null: the plan has none, as the others
  std::vector<std::unique_ptr<memory::PagePool>> sources; // readout unit
  std::unique_ptr<memory::PagePool> metadata;             // likewise
  std::unique_ptr<memory::PagePool> receive;              // builder unit
  std::unique_ptr<memory::PagePool> published;            // likewise
  std::unique_ptr<memory::PagePool> readers;              // likewise

  // `arena.shared` holds for what is sent; nobody else reads what is received. `blank_payload`: the
  // bytes of sources mean nothing (memory::PoolOptions). Errors: exhausted, unsupported.
  [[nodiscard]] static Result<NodePools>
  make(const NodePlan& plan, const memory::ArenaOptions& arena, bool blank_payload = false);
  // Every page is here.
  [[nodiscard]] bool all_home() const;
};

} // namespace fanin::executive
