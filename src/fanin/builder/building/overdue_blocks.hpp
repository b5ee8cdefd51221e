// Which blocks do not come: a readout unit that owes blocks and completes none, of any batch, has
// no way to this builder unit; a batch of which nothing comes although later ones do is stuck.
#pragma once

#include <algorithm>
#include <utility>
#include <vector>

#include "fanin/base/clock.hpp"
#include "fanin/builder/building/assembler.hpp"

namespace fanin::builder {

// Knows no connection; times are the builder unit's deadline clock.
class OverdueBlocks {
public:
  // Half a second, say, is very long for a block that is owed; `dead_after`: for a batch alone.
  // `in_turn`: readout units send to one builder unit after the other (barrel shifter). How long a
  // round takes is not known, so one that seemed to have no way is waited for `dead_after` from
  // then on.
  OverdueBlocks(std::size_t readout_units, Duration timeout, Duration dead_after,
                bool in_turn = false)
      : timeout_(timeout),
        patience_next_(in_turn ? std::max(timeout, dead_after) : timeout),
        dead_after_(dead_after),
        readouts_(readout_units, Readout{.patience = timeout}) {}

  // A block of it has come, or a part of one.
  void heard(NodeId readout) { readouts_[readout].heard = true; }
  // A block of this batch has come from it.
  void heard(NodeId readout, const Assembly& batch) {
    const bool early = batch.state == AssemblyState::early; // it is assigned after all that are
    Duration& latest = readouts_[readout].latest;
    latest = std::max(latest, early ? batch.heard_at : batch.assigned_at);
  }
  // It has a new data connection, and sends all batches again.
  void begins_again(NodeId readout) { readouts_[readout].latest = {}; }
  void forget(NodeId readout) { readouts_[readout] = {.patience = timeout_}; }

  // How often to check.
  [[nodiscard]] Duration period() const { return timeout_ / 4; }
  // The time for the next check has come; then it begins to count anew.
  [[nodiscard]] bool due(Duration now);

  struct Found {
    std::vector<Assembly*> stuck; // of no batch, or of one that was decided long ago, if early
    std::vector<NodeId> no_way;
  };
  // `member(NodeId)`: whether it takes part.
  template <class Member>
  [[nodiscard]] Found check(const Assembler& assembler, Duration now, Member member);

private:
  struct Readout {
    bool heard = false; // since heard_at
    Duration heard_at{};
    Duration latest{}; // when the last one of the batches that it has begun to send was assigned
    Duration patience{}; // without a block that it owes
  };
  [[nodiscard]] bool gets_on(NodeId node, Duration now) const {
    return now - readouts_[node].heard_at < readouts_[node].patience;
  }
  template <class Member>
  [[nodiscard]] bool has_its_turn_before_it(const Assembler& assembler, const Assembly& assembly,
                                            Duration now, Member member) const;
  Duration timeout_; // the first patience
  Duration patience_next_;
  Duration dead_after_;
  std::vector<Readout> readouts_;
  Duration next_check_{};
};

inline bool OverdueBlocks::due(Duration now) {
  if (now < next_check_) return false;
  next_check_ = now + period();
  return true;
}

template <class Member>
OverdueBlocks::Found OverdueBlocks::check(const Assembler& assembler, Duration now, Member member) {
  Found found;
  std::vector<NodeId> silent;
  for (std::size_t i = 0; i < readouts_.size(); ++i) {
    const auto node = static_cast<NodeId>(i);
    if (std::exchange(readouts_[i].heard, false)) readouts_[i].heard_at = now;
    if (!gets_on(node, now) && member(node)) silent.push_back(node);
  }
  for (const auto& [first, assembly] : assembler.assemblies()) {
    if (assembly->state == AssemblyState::decided) continue;
    if (assembly->heard) {
      assembly->heard = false;
      assembly->heard_at = now;
    }
    if (now - assembly->heard_at >= dead_after_ + timeout_ &&
        !has_its_turn_before_it(assembler, *assembly, now, member)) {
      found.stuck.push_back(assembly);
    }
    if (assembly->state != AssemblyState::assigned) continue;
    std::erase_if(silent, [&](NodeId node) {
      const bool long_enough = now - assembly->assigned_at >= readouts_[node].patience;
      if (!long_enough || !assembler.owes(*assembly, node)) return false;
      found.no_way.push_back(node);
      return true;
    });
  }
  std::sort(found.no_way.begin(), found.no_way.end());
  for (const NodeId node : found.no_way) readouts_[node].patience = patience_next_;
  return found;
}

// A readout unit sends batches in the order in which they were assigned. One that gets on and has
// not begun a later one comes to this one yet, however long that takes on a slow link.
template <class Member>
bool OverdueBlocks::has_its_turn_before_it(const Assembler& assembler, const Assembly& assembly,
                                           Duration now, Member member) const {
  if (assembly.state != AssemblyState::assigned) return false;
  for (std::size_t i = 0; i < readouts_.size(); ++i) {
    const auto node = static_cast<NodeId>(i);
    if (gets_on(node, now) && member(node) && readouts_[i].latest <= assembly.assigned_at &&
        assembler.owes(assembly, node)) {
      return true;
    }
  }
  return false;
}

} // namespace fanin::builder
