// Two nodes of a virtual world, for the conformance suite.
#pragma once

#include <utility>

#include "fanin/net/conformance/backend.hpp"
#include "fanin/net/virtual_world.hpp"

namespace fanin::net::conformance {

class SimBackend final : public Backend {
public:
  explicit SimBackend(VirtualNetworkOptions options)
      : world_(1, std::move(options)),
        server_(world_.add_node("server")),
        client_(world_.add_node("client")) {}
  Transport& server() override { return server_.transport(); }
  Transport& client() override { return client_.transport(); }
  [[nodiscard]] Url address() const override { return {.scheme = "sim", .host = "server"}; }
  [[nodiscard]] Url nobody() const override { return {.scheme = "sim", .host = "nobody"}; }
  bool turn() override { return world_.step(); }
  bool pass(Duration time) override {
    (void)world_.run_until(world_.now() + time);
    return true;
  }
  bool kill_client() override {
    client_.kill();
    return true;
  }

private:
  VirtualWorld world_;
  VirtualNode& server_;
  VirtualNode& client_;
};

} // namespace fanin::net::conformance
