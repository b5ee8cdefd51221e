#include "fanin/executive/node.hpp"

#include <fmt/format.h>

namespace fanin::executive {

Result<std::unique_ptr<Node>> Node::make(NodeContext context) {
  switch (context.configuration->nodes[context.index].role) {
  case config::Role::event_manager: return detail::make_event_manager(std::move(context));
  case config::Role::readout: return detail::make_readout(std::move(context));
  case config::Role::builder: return detail::make_builder(std::move(context));
  case config::Role::application: return detail::make_application(std::move(context));
  }
  return fail(ErrorKind::internal, "a node without a role");
}

builder::NodeEnvironment Node::environment() {
  return {.loop = context_.loop,
          .transports = context_.transports,
          .control_pool = control_pool_.get(),
          .log = context_.log,
          .session = context_.session};
}

Result<> Node::in_order(const Result<>& result, bool joined) const {
  const bool too_late = !result && result.error().text == builder::run_is_ending;
  if (too_late && !joined && !context_.by_hand) return {};
  return result;
}

void Node::leave_at_end(bool joined) {
  if (joined) outcome_ = fail(ErrorKind::disconnected, "stopped without an event manager");
}

Result<> Node::make_control_pool() {
  auto pool = make_pool(context_.plan->control, Use::send);
  if (!pool) return std::unexpected(pool.error());
  control_pool_ = std::move(*pool);
  return {};
}

Result<std::unique_ptr<memory::PagePool>> Node::make_pool(const PoolPlan& plan, Use use) {
  auto pool = memory::PagePool::make(
      {.page_size = plan.page_size,
       .pages = plan.pages,
       .arena = {.numa_node = configured().numa_node,
                 .huge_pages = context_.configuration->buffers.huge_pages,
                 .shared = use == Use::send && context_.transports->share_memory()}});
  if (pool) return pool;
  return fail(pool.error().kind,
              fmt::format("{}: its buffers: {}", configured().name, pool.error().text));
}

} // namespace fanin::executive
