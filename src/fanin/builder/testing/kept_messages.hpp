// Keeps the messages of the event manager to nodes, for unit tests.
#pragma once

#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "fanin/builder/control/node_outbox.hpp"

namespace fanin::builder::testing {

// All nodes take part at first, and have room.
class KeptMessages final : public NodeOutbox {
public:
  KeptMessages(std::size_t readouts, std::size_t builders)
      : NodeOutbox(readouts, builders), readouts_(readouts), nodes_(readouts + builders) {}

  void leave(NodeKey key) { node(key).takes_part = false; }
  void set_roomy(NodeKey key, bool roomy) { node(key).roomy = roomy; }

  // The messages of this type to a node since the last call, without their parts.
  template <class Body>
  [[nodiscard]] std::vector<Body> take(NodeKey key) {
    std::vector<Body> taken;
    std::erase_if(node(key).messages, [&](const Message& message) {
      if (message.type != Body::type) return false;
      std::memcpy(&taken.emplace_back(), message.bytes.data(), sizeof(Body));
      return true;
    });
    return taken;
  }
  [[nodiscard]] const std::vector<std::pair<NodeKey, std::string>>& dropped() const {
    return dropped_;
  }

  [[nodiscard]] bool takes_part(NodeKey key) const override { return node(key).takes_part; }
  [[nodiscard]] bool roomy(NodeKey key) override { return takes_part(key) && node(key).roomy; }
  [[nodiscard]] bool readouts_roomy() override {
    for (std::size_t i = 0; i < readouts_; ++i)
      if (nodes_[i].takes_part && !nodes_[i].roomy) return false;
    return true;
  }
  [[nodiscard]] std::size_t room_max() const override { return 1024; }
  void drop(NodeKey key, std::string_view why) override {
    leave(key);
    dropped_.emplace_back(key, why);
  }

private:
  struct Message {
    wire::MessageType type{};
    std::vector<std::byte> bytes;
  };
  struct Node {
    bool takes_part = true;
    bool roomy = true;
    std::vector<Message> messages;
  };

  [[nodiscard]] std::byte* reserve(NodeKey key, wire::MessageType type, std::size_t size) override {
    if (!takes_part(key)) return nullptr;
    auto& messages = node(key).messages;
    messages.push_back({type, std::vector<std::byte>(size)});
    return messages.back().bytes.data();
  }
  [[nodiscard]] Node& node(NodeKey key) {
    return nodes_[key.is_readout() ? key.node : readouts_ + key.node];
  }
  [[nodiscard]] const Node& node(NodeKey key) const {
    return nodes_[key.is_readout() ? key.node : readouts_ + key.node];
  }

  std::size_t readouts_;
  std::vector<Node> nodes_;
  std::vector<std::pair<NodeKey, std::string>> dropped_;
};

} // namespace fanin::builder::testing
