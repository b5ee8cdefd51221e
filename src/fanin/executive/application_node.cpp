#include <memory>
#include <utility>

#include <fmt/format.h>

#include "fanin/executive/node.hpp"

namespace fanin::executive::detail {
namespace {

class ApplicationNode final : public Node {
public:
  explicit ApplicationNode(NodeContext context) : Node(std::move(context)) {}

  Result<> make() {
    const config::Node& node = configured();
    const ApplicationFactory* factory = context_.plugins->applications.find(node.type);
    if (factory == nullptr) {
      return fail(ErrorKind::usage, fmt::format("{}: {}.type: no plug-in has an application \"{}\"",
                                                node.place.text(), node.key, node.type));
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
    auto made = (*factory)(context);
    if (!made) return std::unexpected(made.error());
    application_ = std::move(*made);
    return {};
  }

  Result<> start() override { return application_->start(); }
  void stop() override {
    if (application_ != nullptr && !ended_) application_->stop();
  }
  void stop_now(const std::string&) override {
    application_.reset();
    ended_ = true;
  }
  bool ended() const override { return ended_ || application_->ended(); }
  void destroy_application() override {
    ended_ = true;
    application_.reset();
  }

private:
  std::unique_ptr<Application> application_;
  bool ended_ = false;
};

} // namespace

Result<std::unique_ptr<Node>> make_application(NodeContext context) {
  auto node = std::make_unique<ApplicationNode>(std::move(context));
  if (auto made = node->make(); !made) return std::unexpected(made.error());
  return node;
}

} // namespace fanin::executive::detail
