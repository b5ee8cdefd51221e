#include "fanin/executive/application_node.hpp"

#include <utility>

#include <fmt/format.h>

#include "fanin/base/try.hpp"
#include "fanin/executive/plugin_call.hpp"

namespace fanin::executive {

Error unknown_application(const config::Configuration& configuration, const config::Node& node) {
  return configuration.wrong(node.key + ".type",
                             fmt::format("no plug-in has an application \"{}\"", node.type));
}

Result<> ApplicationNode::make() {
  const config::Node& node = configured();
  const ApplicationFactory* factory = context_.plugins->applications.find(node.type);
  if (factory == nullptr) {
    return std::unexpected(unknown_application(*context_.configuration, node));
  }
  ApplicationContext context;
  context.loop = context_.loop;
  context.transports = context_.transports;
  context.log = context_.log;
  context.settings.name = node.name;
  context.settings.type = node.type;
  context.settings.key = node.key;
  context.settings.place = node.place;
  context.settings.log = context_.log;
  context.settings.values = node.settings;
  context.settings.common_keys = node.common_keys;
  const PluginCall call(context.settings, "application");
  application_ = FANIN_TRY((*factory)(context));
  return {};
}

void ApplicationNode::stop() {
  if (application_ != nullptr && !ended_) application_->stop();
}

void ApplicationNode::stop_now(const std::string&) {
  application_.reset();
  ended_ = true;
}

} // namespace fanin::executive
