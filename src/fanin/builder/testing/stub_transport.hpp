// For tests: a network that takes messages until it is told not to.
#pragma once

#include <deque>
#include <span>
#include <string>
#include <vector>

#include "fanin/net/link.hpp"

namespace fanin::builder::testing {

class StubTransport final : public net::Transport {
public:
  Result<net::ListenerId> listen(const net::Url&, const net::ConnectionOptions&) override {
    return net::ListenerId::none;
  }
  net::Url listening_url(net::ListenerId) const override { return {}; }
  void close_listener(net::ListenerId) override {}
  Result<net::ConnectionId> connect(const net::Url&, const net::ConnectionOptions&) override {
    return net::ConnectionId::none;
  }
  net::SendOutcome send(net::ConnectionId, std::span<const memory::View> extents) override {
    if (blocked) return net::SendOutcome::backpressure;
    if (too_small) return net::SendOutcome::too_large;
    for (const auto& extent : extents) sent.push_back(extent);
    return net::SendOutcome::accepted;
  }
  void flush() override {}
  std::size_t poll(std::span<net::Event>) override { return 0; }
  bool arm() override { return true; }
  int descriptor() const override { return -1; }
  void close(net::ConnectionId connection, bool) override { closed.push_back(connection); }
  std::string peer_name(net::ConnectionId) const override { return "stub"; }

  net::Link link(std::uint64_t connection = 1) { return {this, net::ConnectionId{connection}}; }

  bool blocked = false;
  bool too_small = false;
  std::deque<memory::View> sent;
  std::vector<net::ConnectionId> closed;
};

} // namespace fanin::builder::testing
