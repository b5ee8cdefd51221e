// A connection by hand, for tests: plays a node, or an event manager, that says what no good one
// says.
#pragma once

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "fanin/builder/control/control_batcher.hpp"
#include "fanin/net/virtual_world.hpp"
#include "fanin/wire/data_block.hpp"

namespace fanin::builder::testing {

class FakeNode final : public net::Handler {
public:
  FakeNode(net::VirtualWorld& world, const std::string& name) : FakeNode(world.add_node(name)) {}
  explicit FakeNode(net::VirtualNode& node)
      : FakeNode(node.transport(), {.huge_pages = memory::HugePages::off, .reserve_only = true}) {}
  FakeNode(net::Transport& transport, const memory::ArenaOptions& arena) : transport_(transport) {
    auto pool = memory::PagePool::make({.page_size = 32U << 10, .pages = 64, .arena = arena});
    FANIN_ASSERT(pool.has_value());
    pool_ = std::move(*pool);
  }
  ~FakeNode() override { close(); }

  void connect(const std::string& url) {
    closed_ = reached_ = false;
    const auto id = transport_.connect(*net::Url::parse(url), options());
    FANIN_ASSERT(id.has_value());
    link_ = {&transport_, *id};
  }
  void listen(const std::string& url) {
    FANIN_ASSERT(transport_.listen(*net::Url::parse(url), options()).has_value());
  }
  void close() { link_.close(true); }

  template <class Body, class... Parts>
  void say(const Body& body, const Parts&... parts) {
    ControlBatcher batcher{link_, *pool_};
    batcher.append(body, parts...);
    batcher.flush();
  }
  void say_hello(wire::Hello hello, const std::string& text) {
    hello.text_size = static_cast<std::uint32_t>(text.size());
    say(hello, std::string_view{text});
  }
  // One data block as a message of its own; sealed here.
  void send_block(const wire::DataBlockHeader& header,
                  const std::vector<wire::FragmentEntry>& table, bool checksum = true) {
    auto page = pool_->take();
    FANIN_ASSERT(page);
    const std::size_t head = sizeof header + table.size() * sizeof(wire::FragmentEntry);
    std::memcpy(page.data(), &header, sizeof header);
    std::memcpy(page.data() + sizeof header, table.data(), head - sizeof header);
    std::memset(page.data() + head, 0, header.payload_size);
    wire::seal_data_block({page.data(), head}, checksum);
    const auto view = page.freeze(0, static_cast<std::uint32_t>(head + header.payload_size));
    (void)link_.send({&view, 1});
  }

  // What it says goes to the latest that has said a hello of this role.
  void turn_to(wire::Role role) {
    for (const auto& heard : heard_) {
      wire::MessageReader reader{heard.body};
      wire::Hello hello;
      if (heard.type == wire::MessageType::hello && reader.read(hello) && hello.role == role)
        link_ = heard.from;
    }
  }

  [[nodiscard]] bool connected() const { return static_cast<bool>(link_); }
  [[nodiscard]] bool reached() const { return reached_; } // it can say something
  [[nodiscard]] bool closed() const { return closed_; } // by the other side
  [[nodiscard]] bool heard(wire::MessageType type) const {
    return std::ranges::find(heard_, type, &Heard::type) != heard_.end();
  }
  // What follows the body of the first message of that kind.
  template <class Body>
  [[nodiscard]] std::string text_after() const {
    const auto found = std::ranges::find(heard_, Body::type, &Heard::type);
    FANIN_ASSERT(found != heard_.end());
    Body body;
    wire::MessageReader reader{found->body};
    FANIN_ASSERT(reader.read(body));
    return std::string{reader.text(body.text_size)};
  }
  // The bodies of all messages of that kind, without what follows them.
  template <class Body>
  [[nodiscard]] std::vector<Body> all() const {
    std::vector<Body> bodies;
    for (const auto& heard : heard_) {
      if (heard.type != Body::type) continue;
      wire::MessageReader reader{heard.body};
      FANIN_ASSERT(reader.read(bodies.emplace_back()));
    }
    return bodies;
  }

  void on_event(net::Transport& transport, net::Event& event) override {
    switch (event.kind) {
    case net::EventKind::connected: reached_ = true; [[fallthrough]];
    case net::EventKind::accepted: link_ = {&transport, event.connection}; break;
    case net::EventKind::message:
      (void)for_each_message(
          event.message.bytes(), [&](wire::MessageType type, std::span<const std::byte> body) {
            heard_.push_back({type, {body.begin(), body.end()}, {&transport, event.connection}});
            return true;
          });
      break;
    case net::EventKind::closed:
      if (link_.id == event.connection) link_ = {};
      closed_ = true;
      break;
    case net::EventKind::writable: break;
    }
  }

private:
  struct Heard {
    wire::MessageType type{};
    std::vector<std::byte> body;
    net::Link from;
  };
  net::ConnectionOptions options() { return {.receive_pool = pool_.get(), .handler = this}; }

  net::Transport& transport_;
  std::unique_ptr<memory::PagePool> pool_;
  net::Link link_;
  std::vector<Heard> heard_;
  bool reached_ = false;
  bool closed_ = false;
};

} // namespace fanin::builder::testing
