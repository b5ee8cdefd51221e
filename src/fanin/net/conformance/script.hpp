/// \file
/// The part of the conformance suite that compares transports: a random script of connections,
/// messages and ends gives the same result over each of them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "fanin/base/random.hpp"
#include "fanin/net/conformance/fixture.hpp"

namespace fanin::net::conformance {

struct Operation {
  enum class Kind : std::uint8_t { connect, send, close };
  Kind kind = Kind::connect;
  bool by_client = true;
  std::size_t connection = 0; ///< in the order of connecting
  std::uint32_t size = 0;
};

/// Sizes of the messages that the ends of each connection received (Peer checks their bytes).
using Sizes = std::vector<std::vector<std::uint32_t>>;
struct Received {
  Sizes at_server;
  Sizes at_client;
};

inline std::vector<Operation> random_script(std::uint64_t seed) {
  using Kind = Operation::Kind;
  Random random(seed);
  std::vector<Operation> script;
  std::vector<std::size_t> open;
  std::size_t made = 0;
  const auto random_size = [&] {
    const std::uint64_t bounds[] = {1, 20, 600, page_size / 2 + 1};
    return static_cast<std::uint32_t>(random.below(bounds[random.below(4)]));
  };
  for (int i = 0; i < 600; ++i) {
    if (open.empty() || (open.size() < 8 && random.chance(1, 20))) {
      open.push_back(made++);
      script.push_back({.kind = Kind::connect, .connection = open.back()});
      continue;
    }
    const std::size_t at = random.below(open.size());
    const bool ends = random.chance(1, 40);
    script.push_back({.kind = ends ? Kind::close : Kind::send,
                      .by_client = random.chance(1, 2),
                      .connection = open[at],
                      .size = ends ? 0 : random_size()});
    if (ends) open.erase(open.begin() + static_cast<std::ptrdiff_t>(at));
  }
  for (const std::size_t connection : open) {
    script.push_back({.kind = Kind::close, .connection = connection});
  }
  return script;
}

inline Received expected_of(const std::vector<Operation>& script) {
  Received expected;
  for (const Operation& operation : script) {
    if (operation.kind == Operation::Kind::connect) {
      expected.at_server.emplace_back();
      expected.at_client.emplace_back();
    } else if (operation.kind == Operation::Kind::send) {
      Sizes& sizes = operation.by_client ? expected.at_server : expected.at_client;
      sizes[operation.connection].push_back(operation.size);
    }
  }
  return expected;
}

/// One side of all connections of a script.
struct ScriptEnd {
  explicit ScriptEnd(Peer& of) : peer(of) {
    peer.opened.clear();
    peer.react = [this](Transport&, Event& event) {
      received.resize(peer.opened.size());
      if (event.kind != EventKind::message) return;
      const auto found = std::ranges::find(peer.opened, event.connection);
      received[static_cast<std::size_t>(found - peer.opened.begin())].push_back(event.message.size +
                                                                                event.rest.size);
    };
  }

  Peer& peer;
  Sizes received;
  std::vector<std::uint64_t> sent; ///< messages by connection
};

TEST_P(TransportConformance, a_script_gives_the_same_messages_on_every_transport) {
  using Kind = Operation::Kind;
  for (std::uint64_t seed = 1; seed <= GetParam().limits.scripts; ++seed) {
    SCOPED_TRACE("script " + std::to_string(seed));
    const std::vector<Operation> script = random_script(seed);
    ScriptEnd at_servers(server);
    ScriptEnd at_clients(client);
    listen(server);
    for (const Operation& operation : script) {
      ScriptEnd& actor = operation.by_client ? at_clients : at_servers;
      ScriptEnd& other = operation.by_client ? at_servers : at_clients;
      Transport& transport = operation.by_client ? backend->client() : backend->server();
      if (operation.kind == Kind::connect) {
        (void)connect(client.options());
        ASSERT_TRUE(run_until([&] {
          return client.opened.size() > operation.connection &&
                 server.opened.size() > operation.connection;
        }));
        for (ScriptEnd* const end : {&at_servers, &at_clients}) end->sent.push_back(0);
        continue;
      }
      const ConnectionId id = actor.peer.opened[operation.connection];
      std::uint64_t& sent = actor.sent[operation.connection];
      if (operation.kind == Kind::send) {
        ASSERT_EQ(send(actor.peer, transport, id, sent++, operation.size), SendOutcome::accepted);
        continue;
      }
      // Otherwise messages on their way to the side that closes would not all arrive.
      ASSERT_TRUE(run_until([&] {
        return actor.received[operation.connection].size() == other.sent[operation.connection];
      }));
      const std::size_t ended = other.peer.closed.size();
      transport.close(id);
      ASSERT_TRUE(run_until([&] { return other.peer.closed.size() == ended + 1; }));
      EXPECT_EQ(other.peer.closed.back().second, CloseReason::peer_closed);
    }
    const Received expected = expected_of(script);
    EXPECT_EQ(at_servers.received, expected.at_server);
    EXPECT_EQ(at_clients.received, expected.at_client);
    backend->server().close_listener(listener);
    server.react = nullptr;
    client.react = nullptr;
  }
}

} // namespace fanin::net::conformance
