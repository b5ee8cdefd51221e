#include "fanin/executive/node_pools.hpp"
#include "fanin/base/try.hpp"

#include <algorithm>
#include <utility>

namespace fanin::executive {
namespace {

using Pool = std::unique_ptr<memory::PagePool>;

Result<> make_pool(const PoolPlan& plan, const memory::ArenaOptions& arena, Pool& pool,
                   bool blank = false) {
  if (plan.pages == 0) return {};
  pool = FANIN_TRY(memory::PagePool::make(
      {.page_size = plan.page_size, .pages = plan.pages, .blank = blank, .arena = arena}));
  return {};
}

bool is_home(const Pool& pool) { return pool == nullptr || pool->available() == pool->pages(); }

} // namespace

Result<NodePools> NodePools::make(const NodePlan& plan, const memory::ArenaOptions& arena,
                                  bool blank_payload) {
  NodePools pools;
  pools.sources.resize(plan.sources.size());
  memory::ArenaOptions receive = arena;
  receive.shared = arena.shared && plan.receive_shared;
  FANIN_TRY(make_pool(plan.control, arena, pools.control));
  FANIN_TRY(make_pool(plan.metadata, arena, pools.metadata));
  for (std::size_t i = 0; i < plan.sources.size(); ++i)
    FANIN_TRY(make_pool(plan.sources[i], arena, pools.sources[i], blank_payload));
  FANIN_TRY(make_pool(plan.receive, receive, pools.receive));
  FANIN_TRY(make_pool(plan.published, arena, pools.published));
  FANIN_TRY(make_pool(plan.readers, arena, pools.readers));
  return pools;
}

bool NodePools::all_home() const {
  return is_home(control) && is_home(metadata) && is_home(receive) && is_home(published) &&
         is_home(readers) && std::ranges::all_of(sources, is_home);
}

} // namespace fanin::executive
