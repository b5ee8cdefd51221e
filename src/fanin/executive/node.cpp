#include "fanin/executive/node.hpp"

#include <utility>

#include "fanin/base/try.hpp"
#include "fanin/executive/application_node.hpp"
#include "fanin/executive/builder_node.hpp"
#include "fanin/executive/event_manager_node.hpp"
#include "fanin/executive/filter_node.hpp"
#include "fanin/executive/readout_node.hpp"

namespace fanin::executive {

namespace {

template <class Made>
Result<std::unique_ptr<Node>> make_node(NodeContext context) {
  auto node = std::make_unique<Made>(std::move(context));
  FANIN_TRY(node->make());
  return node;
}

} // namespace

Result<std::unique_ptr<Node>> Node::make(NodeContext context) {
  switch (context.configuration->nodes[context.index].role) {
  case config::Role::event_manager: return std::make_unique<EventManagerNode>(std::move(context));
  case config::Role::readout: return make_node<ReadoutNode>(std::move(context));
  case config::Role::builder: return std::make_unique<BuilderNode>(std::move(context));
  case config::Role::application: return make_node<ApplicationNode>(std::move(context));
  case config::Role::filter: return make_node<FilterNode>(std::move(context));
  }
  return fail(ErrorKind::internal, "a node without a role");
}

builder::NodeEnvironment Node::environment() {
  return {.loop = context_.loop,
          .transports = context_.transports,
          .control_pool = context_.pools->control.get(),
          .log = context_.log,
          .session = context_.session,
          .unix_ns_at_zero = context_.unix_ns_at_zero};
}

std::string Node::event_manager_text() const {
  std::string text;
  for (const net::Url& rail : context_.event_manager) {
    text += (text.empty() ? "" : " or ") + rail.text();
  }
  return text;
}

Result<> Node::in_order(const Result<>& result, bool joined, bool too_late) {
  too_late_ = too_late;
  if (too_late && !joined && !context_.by_hand) return {};
  return result;
}

void Node::leave_at_end(bool joined) {
  if (joined) outcome_ = fail(ErrorKind::disconnected, "stopped without an event manager");
}

} // namespace fanin::executive
