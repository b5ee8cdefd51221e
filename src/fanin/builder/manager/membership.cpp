#include "fanin/builder/manager/membership.hpp"

#include <utility>

namespace fanin::builder {

void NodeList::change(NodeId node, Presence presence) {
  Node& changed = nodes_[node];
  if (changed.presence == Presence::present) --present_;
  if (presence == Presence::present) ++present_;
  changed.presence = presence;
}

Incarnation NodeList::join(NodeId node) {
  FANIN_ASSERT(!present(node));
  change(node, Presence::present);
  nodes_[node].ready = false;
  return ++nodes_[node].incarnation;
}

void NodeList::leave(NodeId node) {
  if (presence(node) != Presence::finished) change(node, Presence::away);
}

std::uint64_t Epochs::begin(std::vector<Incarnation> readout_units) {
  epochs_[++current_].readout_units = std::move(readout_units);
  return current_;
}

void Epochs::leave(std::uint64_t epoch) {
  Epoch& left = epochs_.at(epoch);
  FANIN_ASSERT(left.batches > 0);
  --left.batches;
  while (epochs_.begin()->first < current_ && epochs_.begin()->second.batches == 0) {
    epochs_.erase(epochs_.begin());
  }
}

} // namespace fanin::builder
