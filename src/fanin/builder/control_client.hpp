// A node's connection to the event manager: connects in any order of starting, says hello, and
// comes back after a loss. Shared by readout and builder units.
#pragma once

#include <functional>
#include <string>

#include "fanin/base/log.hpp"
#include "fanin/builder/gather.hpp"
#include "fanin/builder/system.hpp"
#include "fanin/net/link.hpp"
#include "fanin/net/loop.hpp"

namespace fanin::builder {

// What a node is told from outside: everything that touches the world.
struct NodeEnvironment {
  net::Loop* loop = nullptr;
  net::TransportSet* transports = nullptr;
  memory::PagePool* control_pool = nullptr; // for messages in and out
  LogFunction log;
};

// What may wait to be sent on one control connection: a peer that stops reading is given up beyond,
// and cannot take the pages of the others.
[[nodiscard]] inline std::uint64_t control_queue_bytes(const memory::PagePool& pool) {
  return 3U * pool.page_size();
}
// The least page for control messages, the same for all nodes: half of it carries the counters of
// a readout unit with so many sources, or an event that all of them lack.
[[nodiscard]] inline std::uint32_t control_page_least(std::size_t sources) {
  return static_cast<std::uint32_t>(2 * (sizeof(wire::SourceCounters) * sources + 128));
}
// Pages of control messages for a node with so many connections.
[[nodiscard]] inline std::uint32_t control_pages(std::size_t connections) {
  return static_cast<std::uint32_t>(16 + 8 * connections);
}

class ControlClient final : public net::Handler {
public:
  // Called for each message from the event manager; false: it makes no sense, hang up.
  using OnMessage = std::function<bool(wire::MessageType, std::span<const std::byte>)>;

  struct Options {
    net::Url event_manager;
    wire::Hello hello; // role, node, digest, capacity
    std::string text; // name, '\n', data URL
    Duration give_up_after =
        std::chrono::seconds{10}; // without an event manager that once was there
    OnMessage on_message;
    std::function<void()> on_lost; // the connection ended; a new one is tried
    // Refused for good, or for longer than give_up_after; or the event manager stays away.
    std::function<void(const Error&)> on_given_up;
  };

  ControlClient(NodeEnvironment environment, Options options);
  ~ControlClient() override;

  void start();
  void stop(); // closes; what was gathered is still sent
  void flush(); // end of turn

  template <class Body, class... Parts>
  void send(const Body& body, const Parts&... parts) {
    gather_.append(body, parts...);
  }
  // As Gather's: what may grow long is only said while there is room.
  [[nodiscard]] bool roomy(std::size_t parts_bytes = 0) { return gather_.roomy(parts_bytes); }
  [[nodiscard]] std::size_t room_max() const { return gather_.room_max(); }
  [[nodiscard]] bool connected() const { return connected_; }
  [[nodiscard]] bool sent() const { return gather_.sent(); }

  void on_event(net::Transport& transport, net::Event& event) override;

private:
  void connect();
  void lost(std::string_view why);
  void receive(const memory::View& page);
  void refused(const std::string& reason, bool for_now);

  NodeEnvironment environment_;
  Options options_;
  Gather gather_;
  net::Link link_;
  net::Timer retry_;
  Duration retry_after_ = std::chrono::milliseconds{10};
  bool connected_ = false;
  bool stopped_ = false;
  bool was_connected_ = false;
  Time lost_at_ = never;
  Time refused_since_ = never;
};

} // namespace fanin::builder
