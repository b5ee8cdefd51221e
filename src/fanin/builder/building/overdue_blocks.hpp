// Finds the data blocks that do not come. A lane that owes blocks and completes none of any batch
// does not reach this builder unit. A batch of which nothing comes, although blocks of later
// batches come, is stuck.
#pragma once

#include <algorithm>
#include <span>
#include <utility>
#include <vector>

#include "fanin/base/clock.hpp"
#include "fanin/builder/building/assembler.hpp"

namespace fanin::builder {

// Knows no connection; times are the builder unit's deadline clock.
class OverdueBlocks {
public:
  // `timeout`: how long a lane may owe a block without completing one. `dead_after`: how long a
  // single batch is waited for. `lanes`: most lanes of a readout unit. `in_turn`: readout units
  // send to one builder unit after the other (barrel shifter). How long a round takes is not known,
  // so a lane that was reported once is waited for `dead_after` from then on.
  OverdueBlocks(std::size_t readout_units, std::size_t lanes, Duration timeout, Duration dead_after,
                bool in_turn = false)
      : timeout_(timeout),
        patience_next_(in_turn ? std::max(timeout, dead_after) : timeout),
        dead_after_(dead_after),
        lanes_(lanes),
        states_(readout_units * lanes, State{.patience = timeout}) {}

  // A block, or a part of one, has come over this lane.
  void heard(const Lane& lane) { state(lane).heard = true; }
  // A block of this batch has come over this lane.
  void heard(const Lane& lane, const Assembly& batch) {
    const bool early = batch.state == AssemblyState::early; // it is assigned after all that are
    Duration& latest = state(lane).latest;
    latest = std::max(latest, early ? batch.heard_at : batch.assigned_at);
  }
  // The lane is new, and all batches are sent again, maybe with sources of another lane.
  void begins_again(const Lane& lane) {
    state(lane).latest = {};
    if (lane.count > 1) heard(lane);
  }
  void forget(NodeId readout) {
    for (std::size_t i = 0; i < lanes_; ++i) states_[readout * lanes_ + i] = {.patience = timeout_};
  }

  // How often to check.
  [[nodiscard]] Duration period() const { return timeout_ / 4; }
  // True: the time for a check has come. The next one is due after period().
  [[nodiscard]] bool due(Duration now);

  struct Found {
    std::vector<Assembly*> stuck; // to hand back; an early one has no batch, or an old one
    std::vector<Lane> unreachable;
  };
  // `members`: the lanes of readout units that take part, in their order.
  [[nodiscard]] Found check(const Assembler& assembler, Duration now,
                            std::span<const Lane> members);

private:
  struct State { // of a lane
    bool heard = false; // since heard_at
    Duration heard_at{};
    Duration latest{}; // when the last one of the batches that it has begun to send was assigned
    Duration patience{}; // without a block that it owes
  };
  [[nodiscard]] State& state(const Lane& lane) {
    return states_[lane.readout * lanes_ + lane.index];
  }
  [[nodiscard]] const State& state(const Lane& lane) const {
    return states_[lane.readout * lanes_ + lane.index];
  }
  [[nodiscard]] bool is_within_patience(const Lane& lane, Duration now) const {
    return now - state(lane).heard_at < state(lane).patience;
  }
  [[nodiscard]] bool still_to_deliver(const Assembler& assembler, const Assembly& assembly,
                                      Duration now, std::span<const Lane> members) const;
  Duration timeout_; // the first patience
  Duration patience_next_;
  Duration dead_after_;
  std::size_t lanes_; // of a readout unit, at most
  std::vector<State> states_;
  Duration next_check_{};
};

inline bool OverdueBlocks::due(Duration now) {
  if (now < next_check_) return false;
  next_check_ = now + period();
  return true;
}

inline OverdueBlocks::Found OverdueBlocks::check(const Assembler& assembler, Duration now,
                                                 std::span<const Lane> members) {
  Found found;
  for (State& one : states_) {
    if (std::exchange(one.heard, false)) one.heard_at = now;
  }
  std::vector<Lane> silent;
  for (const Lane& lane : members) {
    if (!is_within_patience(lane, now)) silent.push_back(lane);
  }
  for (const auto& [first, assembly] : assembler.assemblies()) {
    if (assembly->state == AssemblyState::decided) continue;
    if (assembly->heard) {
      assembly->heard = false;
      assembly->heard_at = now;
    }
    if (now - assembly->heard_at >= dead_after_ + timeout_ &&
        !still_to_deliver(assembler, *assembly, now, members)) {
      found.stuck.push_back(assembly);
    }
    if (assembly->state != AssemblyState::assigned) continue;
    std::erase_if(silent, [&](const Lane& lane) {
      const bool long_enough = now - assembly->assigned_at >= state(lane).patience;
      if (!long_enough || !assembler.owes(*assembly, lane)) return false;
      found.unreachable.push_back(lane);
      return true;
    });
  }
  std::ranges::sort(found.unreachable, {},
                    [](const Lane& lane) { return std::pair{lane.readout, lane.index}; });
  for (const Lane& lane : found.unreachable) state(lane).patience = patience_next_;
  return found;
}

// A lane carries batches in the order in which they were assigned. A lane that still delivers, and
// has begun no later batch, will still deliver this one, however slow its link is.
inline bool OverdueBlocks::still_to_deliver(const Assembler& assembler, const Assembly& assembly,
                                            Duration now, std::span<const Lane> members) const {
  if (assembly.state != AssemblyState::assigned) return false;
  return std::ranges::any_of(members, [&](const Lane& lane) {
    return is_within_patience(lane, now) && state(lane).latest <= assembly.assigned_at &&
           assembler.owes(assembly, lane);
  });
}

} // namespace fanin::builder
