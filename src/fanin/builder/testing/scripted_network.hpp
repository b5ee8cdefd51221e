// For tests: a network in which the test is the other end of each connection. Nothing happens by
// itself.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "fanin/base/assert.hpp"
#include "fanin/builder/control/control_frame.hpp"
#include "fanin/memory/heap_page.hpp"
#include "fanin/net/link.hpp"

namespace fanin::builder::testing {

class ScriptedNetwork final : public net::Transport {
public:
  struct Connection {
    std::string url; // it was made to this address, or accepted there
    net::Handler* handler = nullptr;
    std::vector<std::vector<std::byte>> sent; // messages
    bool blocked = false; // takes no message now
    bool too_small = false; // takes no message of any size
    bool over = false;
    bool aborted = false; // by the node under test
    bool identified = false;
    std::uint64_t unfinished = 0; // bytes
  };
  [[nodiscard]] std::size_t size() const { return connections_.size(); }
  // In the order of connecting and accepting, from 0 on.
  [[nodiscard]] Connection& operator[](std::size_t index) { return connections_.at(index); }
  [[nodiscard]] Connection& last() { return connections_.back(); }
  [[nodiscard]] std::size_t open() const { // how many are not over
    std::size_t count = 0;
    for (const Connection& one : connections_) count += one.over ? 0 : 1;
    return count;
  }
  std::optional<Error> refusal; // of connect() and listen()

  // What the other end does.
  void accept_connection(std::size_t index) { // of the node
    tell(index, {.kind = net::EventKind::connected});
  }
  std::size_t connect_to_listener(std::size_t listener = 0) { // gives its index
    connections_.push_back(listeners_.at(listener));
    tell(size() - 1, {.kind = net::EventKind::accepted});
    return size() - 1;
  }
  template <class Body, class... Parts>
  void say(std::size_t index, const Body& body, const Parts&... parts) {
    std::vector<std::byte> page;
    append(page, body, parts...);
    say_bytes(index, page);
  }
  // For several messages in one page.
  template <class Body, class... Parts>
  static void append(std::vector<std::byte>& page, const Body& body, const Parts&... parts) {
    put_message(
        [&page](wire::MessageType type, std::size_t size) {
          const std::size_t at = page.size();
          page.resize(at + message::frame_size(size));
          return put_header(page.data() + at, type, size);
        },
        body, parts...);
  }
  void say_bytes(std::size_t index, std::span<const std::byte> bytes) {
    net::Event event{.kind = net::EventKind::message};
    event.message = memory::HeapPage::copy(bytes);
    tell(index, event);
  }
  void unblock(std::size_t index) {
    connections_.at(index).blocked = false;
    tell(index, {.kind = net::EventKind::writable});
  }
  void end(std::size_t index, net::CloseReason reason = net::CloseReason::peer_died) {
    FANIN_ASSERT(!connections_.at(index).over);
    connections_[index].over = true;
    tell(index, {.kind = net::EventKind::closed, .reason = reason}, true);
  }

  // What the node has said over a connection: the bodies of all messages of a type.
  template <class Body>
  [[nodiscard]] std::vector<Body> all(std::size_t index) {
    std::vector<Body> bodies;
    for_each_said(index, [&](wire::MessageType type, wire::MessageReader& reader) {
      if (type == Body::type) FANIN_ASSERT(reader.read(bodies.emplace_back()));
    });
    return bodies;
  }
  // What follows the body of the last message of that type.
  template <class Body>
  [[nodiscard]] std::string text_after(std::size_t index) {
    std::string text;
    for_each_said(index, [&](wire::MessageType type, wire::MessageReader& reader) {
      Body body;
      if (type != Body::type) return;
      FANIN_ASSERT(reader.read(body));
      text = reader.text(body.text_size);
    });
    return text;
  }
  template <class Visit>
  void for_each_said(std::size_t index, Visit visit) {
    for (const auto& page : connections_.at(index).sent) {
      FANIN_ASSERT(for_each_message(page, [&](wire::MessageType type, auto body) {
        wire::MessageReader reader{body};
        visit(type, reader);
        return true;
      }));
    }
  }

  Result<net::ListenerId> listen(const net::Url& url,
                                 const net::ConnectionOptions& options) override {
    if (refusal) return std::unexpected(*refusal);
    listeners_.push_back({.url = url.text(), .handler = options.handler});
    return net::ListenerId{listeners_.size()};
  }
  net::Url listening_url(net::ListenerId id) const override {
    return net::Url::parse(listeners_[static_cast<std::size_t>(id) - 1].url).value();
  }
  void close_listener(net::ListenerId) override {}
  Result<net::ConnectionId> connect(const net::Url& url,
                                    const net::ConnectionOptions& options) override {
    if (refusal) return std::unexpected(*refusal);
    connections_.push_back({.url = url.text(), .handler = options.handler});
    return net::ConnectionId{connections_.size()};
  }
  net::SendOutcome send(net::ConnectionId id, std::span<const memory::View> extents) override {
    Connection& to = at(id);
    if (to.over) return net::SendOutcome::closed;
    if (to.too_small) return net::SendOutcome::too_large;
    if (to.blocked) return net::SendOutcome::backpressure;
    auto& message = to.sent.emplace_back();
    for (const memory::View& extent : extents) {
      const auto bytes = extent.bytes();
      message.insert(message.end(), bytes.begin(), bytes.end());
    }
    return net::SendOutcome::accepted;
  }
  void flush() override {}
  std::size_t poll(std::span<net::Event>) override { return 0; }
  bool arm() override { return true; }
  int descriptor() const override { return -1; }
  void close(net::ConnectionId id, bool abort) override {
    if (at(id).over) return;
    at(id).over = true;
    at(id).aborted = abort;
  }
  void mark_identified(net::ConnectionId id) override { at(id).identified = true; }
  std::string peer_name(net::ConnectionId id) const override {
    return "peer " + std::to_string(static_cast<std::uint64_t>(id) - 1);
  }
  std::uint64_t unfinished(net::ConnectionId id) const override {
    return connections_[static_cast<std::size_t>(id) - 1].unfinished;
  }

private:
  Connection& at(net::ConnectionId id) { return connections_.at(static_cast<std::size_t>(id) - 1); }
  void tell(std::size_t index, net::Event event, bool ends = false) {
    Connection& one = connections_.at(index);
    FANIN_ASSERT(one.over == ends); // no event follows a close
    event.connection = net::ConnectionId{index + 1};
    event.handler = one.handler;
    one.handler->on_event(*this, event);
  }

  std::deque<Connection> connections_; // stay where they are
  std::vector<Connection> listeners_;
};

} // namespace fanin::builder::testing
