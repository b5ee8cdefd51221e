// A plug-in for tests: a transport "same+inproc" within the process, and an application "counter"
// that counts turns of its loop until it is stopped.
#include <memory>
#include <utility>

#include <fmt/format.h>

#include "fanin/executive/plugin.hpp"
#include "fanin/net/decorator.hpp"
#include "fanin/net/registry.hpp"

namespace {

namespace net = fanin::net;
namespace executive = fanin::executive;

// inproc under a name of its own.
class SameTransport final : public net::Decorator {
public:
  explicit SameTransport(std::unique_ptr<net::Transport> inproc)
      : Decorator("same", std::move(inproc)) {}
};

fanin::Result<std::unique_ptr<net::Transport>> make_same(net::Loop& loop,
                                                         const fanin::LogFunction& log) {
  net::TransportRegistry registry;
  net::add_built_in_transports(registry);
  auto inproc = registry.find("inproc")(loop, log);
  if (!inproc) return inproc;
  return std::make_unique<SameTransport>(std::move(*inproc));
}

class Counter final : public executive::Application, public net::Service {
public:
  explicit Counter(const executive::ApplicationContext& context, std::string greeting)
      : loop_(*context.loop), log_(context.log), greeting_(std::move(greeting)) {}
  ~Counter() override {
    if (started_) loop_.remove(*this);
  }
  fanin::Result<> start() override {
    started_ = true;
    loop_.add(*this);
    log_(fanin::LogLevel::info, greeting_);
    return {};
  }
  void stop() override {
    if (ended_) return;
    ended_ = true;
    log_(fanin::LogLevel::info, fmt::format("{} turns", turns_ > 0 ? "some" : "no"));
  }
  [[nodiscard]] bool ended() const override { return ended_; }
  bool poll() override {
    ++turns_;
    return false;
  }

private:
  net::Loop& loop_;
  fanin::LogFunction log_;
  std::string greeting_;
  unsigned long turns_ = 0;
  bool started_ = false;
  bool ended_ = false;
};

fanin::Result<std::unique_ptr<executive::Application>>
make_counter(const executive::ApplicationContext& context) {
  fanin::source::SettingsReader reader(context.settings);
  std::string greeting = reader.required_text("greeting");
  if (auto good = reader.finish(); !good) return std::unexpected(good.error());
  return std::make_unique<Counter>(context, std::move(greeting));
}

} // namespace

FANIN_PLUGIN_ABI

extern "C" void fanin_register(fanin::executive::PluginRegistry& registry) {
  registry.add_transport("same+inproc", make_same);
  registry.add_application("counter", make_counter);
}
