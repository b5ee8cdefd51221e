// A user's own application as a node of a process.
#pragma once

#include <memory>
#include <string>

#include "fanin/executive/application.hpp"
#include "fanin/executive/node.hpp"

namespace fanin::executive {

// That no plug-in has its type.
[[nodiscard]] Error unknown_application(const config::Configuration& configuration,
                                        const config::Node& node);

class ApplicationNode final : public Node {
public:
  explicit ApplicationNode(NodeContext context) : Node(std::move(context)) {}

  // To be called once, before start(). Errors: usage, for an unknown type; those of the
  // application.
  [[nodiscard]] Result<> make();

  [[nodiscard]] Result<> start() override { return application_->start(); }
  void stop() override;
  void stop_now(const std::string& why) override;
  [[nodiscard]] bool ended() const override { return ended_ || application_->ended(); }

private:
  std::unique_ptr<Application> application_;
  bool ended_ = false;
};

} // namespace fanin::executive
