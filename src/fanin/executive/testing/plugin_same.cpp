// A plug-in for tests: a transport "same" within the process, and an application "counter" that
// counts turns of its loop until it is stopped.
#include <memory>
#include <utility>

#include <fmt/format.h>

#include "fanin/executive/plugin.hpp"
#include "fanin/net/in_memory/network.hpp"

namespace {

namespace net = fanin::net;
namespace executive = fanin::executive;

struct OwnNetwork {
  net::in_memory::Network network{net::in_memory::NetworkOptions{.scheme = "same"}};
};

class SameTransport final : private OwnNetwork, public net::in_memory::MemoryTransport {
public:
  SameTransport() : MemoryTransport(network, "", 0) {}
};

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
  registry.add_transport("same", [](net::Loop&, const fanin::LogFunction&) {
    return fanin::Result<std::unique_ptr<net::Transport>>(std::make_unique<SameTransport>());
  });
  registry.add_application("counter", make_counter);
}
