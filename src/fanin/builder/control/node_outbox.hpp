// Where the event manager puts messages to nodes. ControlServer sends them over connections; unit
// tests keep them.
#pragma once

#include <cstddef>
#include <string_view>

#include "fanin/base/identity.hpp"
#include "fanin/builder/control/control_frame.hpp"
#include "fanin/wire/control.hpp"

namespace fanin::builder {

struct NodeKey {
  wire::Role role{}; // readout_unit or builder_unit
  NodeId node = 0;
  friend bool operator==(const NodeKey&, const NodeKey&) = default;
  [[nodiscard]] bool is_readout() const { return role == wire::Role::readout_unit; }
};
[[nodiscard]] constexpr NodeKey readout_key(NodeId node) {
  return {wire::Role::readout_unit, node};
}
[[nodiscard]] constexpr NodeKey builder_key(NodeId node) {
  return {wire::Role::builder_unit, node};
}

// Thread: the event manager's loop.
class NodeOutbox {
public:
  NodeOutbox(std::size_t readout_units, std::size_t builder_units)
      : readouts_(readout_units), builders_(builder_units) {}

  // Appends a message: its body, then the bytes of `parts` (arrays of records, or text). No effect
  // if the node does not take part. Where there is no room for it now, it is sent later; a caller
  // that may send much asks roomy() first.
  template <class Body, class... Parts>
  void send(NodeKey key, const Body& body, const Parts&... parts) {
    put_message(
        [this, key](wire::MessageType type, std::size_t size) { return reserve(key, type, size); },
        body, parts...);
  }
  template <class Body, class... Parts>
  void send_to_readouts(const Body& body, const Parts&... parts) {
    for (std::size_t i = 0; i < readouts_; ++i)
      send(readout_key(static_cast<NodeId>(i)), body, parts...);
  }
  template <class Body, class... Parts>
  void send_to_builders(const Body& body, const Parts&... parts) {
    for (std::size_t i = 0; i < builders_; ++i)
      send(builder_key(static_cast<NodeId>(i)), body, parts...);
  }

  [[nodiscard]] virtual bool takes_part(NodeKey key) const = 0;
  // Whether a message that may be long has room. False also if the node does not take part.
  // Otherwise the node has not acknowledged earlier messages: try again next turn.
  [[nodiscard]] virtual bool roomy(NodeKey key) = 0;
  // All readout units that take part are roomy.
  [[nodiscard]] virtual bool readouts_roomy() = 0;
  // The most bytes of `parts` that a message can carry after its body.
  [[nodiscard]] virtual std::size_t room_max() const = 0;
  // Ends the part of this node in the run, at once. No effect if it does not take part.
  virtual void drop(NodeKey key, std::string_view why) = 0;

protected:
  ~NodeOutbox() = default;
  NodeOutbox(const NodeOutbox&) = default;
  NodeOutbox& operator=(const NodeOutbox&) = default;
  // The place for a message of that size without its frame's header; null: the node does not take
  // part.
  [[nodiscard]] virtual std::byte* reserve(NodeKey key, wire::MessageType type,
                                           std::size_t size) = 0;

private:
  std::size_t readouts_;
  std::size_t builders_;
};

} // namespace fanin::builder
