// For tests: a node that the event manager has welcomed, and what it says.
#pragma once

#include <memory>
#include <vector>

#include "fanin/builder/control/control_client.hpp"
#include "fanin/builder/testing/scripted_network.hpp"

namespace fanin::builder::testing {

class Conversation {
public:
  explicit Conversation(std::uint32_t page_size = 4096, std::uint32_t pages = 16)
      : pool_(memory::PagePool::make({.page_size = page_size,
                                      .pages = pages,
                                      .arena = {.huge_pages = memory::HugePages::off}})
                  .value()) {
    transports_.add("sim", network_);
    ControlClient::Options options;
    options.event_manager = {net::Url::parse("sim://evm").value()};
    options.on_message = [](wire::MessageType, std::span<const std::byte>) { return true; };
    options.on_lost = [] {};
    options.on_given_up = [](const Error&) {};
    client_ =
        std::make_unique<ControlClient>(NodeEnvironment{.loop = &loop_,
                                                        .transports = &transports_,
                                                        .control_pool = pool_.get(),
                                                        .log = [](LogLevel, std::string_view) {}},
                                        std::move(options));
    client_->start();
    network_.accept_connection(0);
    network_.say(0, wire::Welcome{.run = 1, .incarnation = 1});
  }

  [[nodiscard]] ControlClient& client() { return *client_; }
  // The event manager reads nothing, until there is no room for another message.
  void fill() {
    while (client_->roomy()) client_->send(wire::Finish{});
  }
  // It reads all.
  void acknowledge() {
    client_->flush();
    std::uint64_t pages = 0;
    network_.for_each_said(0, [&](wire::MessageType type, wire::MessageReader&) {
      pages += type == wire::MessageType::numbered ? 1 : 0;
    });
    network_.say(0, wire::Acknowledge{pages});
  }
  // All that was said so far.
  template <class Body>
  [[nodiscard]] std::vector<Body> all() {
    client_->flush();
    return network_.all<Body>(0);
  }
  [[nodiscard]] ScriptedNetwork& network() { return network_; }

private:
  VirtualClock clock_;
  net::Loop loop_{clock_};
  ScriptedNetwork network_;
  net::TransportSet transports_;
  std::unique_ptr<memory::PagePool> pool_;
  std::unique_ptr<ControlClient> client_;
};

} // namespace fanin::builder::testing
