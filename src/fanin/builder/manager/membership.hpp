// Which nodes take part in the run: who is here, as which incarnation, and with which readout units
// each batch was assigned (epochs).
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "fanin/base/assert.hpp"
#include "fanin/base/identity.hpp"
#include "fanin/wire/control.hpp"

namespace fanin::builder {

enum class Presence : std::uint8_t {
  away, // not here yet, or gone
  present, // also while a lost connection may come back
  finished, // has sent its last counters; whether it is connected does not matter any more
  failed // gone, since its storage failed
};

// The nodes of one role.
class NodeList {
public:
  explicit NodeList(std::size_t nodes) : nodes_(nodes) {}

  // A new incarnation. It must not be present.
  Incarnation join(NodeId node);
  // Its connection has ended for good. One that has finished stays so.
  void leave(NodeId node);
  // Whether the run may begin, as far as it knows. One that has just joined has not said so yet.
  void on_ready(NodeId node, const wire::Ready& ready) { nodes_[node].ready = ready.yes != 0; }
  void finish(NodeId node) { change(node, Presence::finished); }
  void fail(NodeId node) { change(node, Presence::failed); }

  [[nodiscard]] std::size_t size() const { return nodes_.size(); }
  [[nodiscard]] Presence presence(NodeId node) const { return nodes_[node].presence; }
  [[nodiscard]] bool present(NodeId node) const { return presence(node) == Presence::present; }
  [[nodiscard]] bool ready(NodeId node) const { return nodes_[node].ready; }
  [[nodiscard]] bool all_ready() const { return std::ranges::all_of(nodes_, &Node::ready); }
  [[nodiscard]] std::size_t present_count() const { return present_; }
  // Every one that joined has finished or gone.
  [[nodiscard]] bool none_present() const { return present_ == 0; }
  [[nodiscard]] bool all(Presence presence) const {
    return std::ranges::all_of(nodes_, [=](const Node& node) { return node.presence == presence; });
  }
  // The latest one; 0: it never was here.
  [[nodiscard]] Incarnation incarnation(NodeId node) const { return nodes_[node].incarnation; }

private:
  struct Node {
    Presence presence = Presence::away;
    Incarnation incarnation = 0;
    bool ready = false;
  };
  void change(NodeId node, Presence presence);

  std::vector<Node> nodes_;
  std::size_t present_ = 0;
};

// The sets of readout units with which batches were assigned, by epoch, for as long as a batch
// needs one.
class Epochs {
public:
  // From here on batches are assigned with these incarnations (0: takes no part). Gives the epoch.
  std::uint64_t begin(std::vector<Incarnation> readout_units);
  [[nodiscard]] std::uint64_t current() const { return current_; } // 0: none yet

  // One batch more or less was assigned with the members of that epoch.
  void enter(std::uint64_t epoch) { ++epochs_.at(epoch).batches; }
  void leave(std::uint64_t epoch);
  // By readout unit. Errors: a batch has to have entered the epoch, unless it is the current one.
  [[nodiscard]] std::span<const Incarnation> members(std::uint64_t epoch) const {
    return epochs_.at(epoch).readout_units;
  }
  [[nodiscard]] std::size_t kept() const { return epochs_.size(); }

private:
  struct Epoch {
    std::vector<Incarnation> readout_units;
    std::uint64_t batches = 0;
  };
  std::map<std::uint64_t, Epoch> epochs_;
  std::uint64_t current_ = 0;
};

} // namespace fanin::builder
