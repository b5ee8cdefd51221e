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
  const ApplicationContext context{.loop = context_.loop,
                                   .transports = context_.transports,
                                   .log = context_.log,
                                   .settings =
                                       context_.configuration->settings_of(node, context_.log)};
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
