// The batches that are assigned and not built, and those that have to be assigned again.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory_resource>
#include <optional>
#include <vector>

#include "fanin/base/assert.hpp"
#include "fanin/base/identity.hpp"
#include "fanin/base/state.hpp"
#include "fanin/builder/manager/capacity.hpp"
#include "fanin/wire/control.hpp"

namespace fanin::builder {

enum class BatchState : std::uint8_t {
  unassigned, // new, or taken back from a builder unit
  assigned,   // its data are on their way to the builder unit
  received,   // the builder unit has all of them
  set_aside   // it keeps them in memory of which others take nothing: its capacity is free
};

[[nodiscard]] constexpr bool may_follow(BatchState from, BatchState to) {
  switch (to) {
  case BatchState::unassigned: return from != BatchState::unassigned;
  case BatchState::assigned: return from == BatchState::unassigned;
  case BatchState::received: return from == BatchState::assigned;
  case BatchState::set_aside: return from == BatchState::received;
  }
  return false;
}

// Its builder unit has all its data, and has not stored it yet.
[[nodiscard]] constexpr bool has_all_data(BatchState state) {
  return state == BatchState::received || state == BatchState::set_aside;
}

struct Batch {
  EventRange range;
  std::uint64_t bytes = 0; // reserved for it
  std::int64_t cut_unix_ns = 0;
  CheckedState<BatchState> state = BatchState::unassigned;
  Attempt attempt = 0; // the latest one
  NodeId builder = 0;  // of the latest attempt, as what follows
  Incarnation builder_incarnation = 0;
  std::uint64_t epoch = 0;
  Capacity::Reservation reservation = 0;
  std::optional<NodeId> handed_back;     // by this builder unit; another one is better
  std::vector<wire::MissingRange> missing; // reported so far
  std::uint64_t missing_fragments = 0;     // in these
  std::uint64_t missing_members = 0;       // likewise, of super-fragments
  std::vector<wire::BadFragment> bad;
  std::vector<wire::Gap> gaps;         // in it, and right before it
  std::vector<wire::MissingRange> lost;  // fragments of readout units that died
};

// The next attempt of a batch.
struct Assignment {
  NodeId builder = 0;
  Incarnation incarnation = 0; // of the builder unit
  std::uint64_t epoch = 0;
  Capacity::Reservation reservation = 0;
};

// Knows no connection and no time. References stay valid until the batch is erased.
class BatchTable {
public:
  using Batches = std::pmr::map<EventNumber, Batch>; // by first event

  // A new batch, not assigned yet, which overlaps no other one.
  Batch& add(EventRange range, std::uint64_t bytes);
  void assign(Batch& batch, const Assignment& assignment);
  static void received(Batch& batch) { batch.state = BatchState::received; }
  static void set_aside(Batch& batch) { batch.state = BatchState::set_aside; }
  // Its builder unit died, or cannot complete it: it waits to be assigned again.
  void take_back(Batch& batch);
  // It is built.
  void erase(Batch& batch) {
    FANIN_ASSERT(batch.state != BatchState::unassigned); // or it is in to_reassign_
    batches_.erase(batch.range.first);
  }

  // The oldest one that was taken back; null: none.
  [[nodiscard]] Batch* next_to_reassign() {
    return to_reassign_.empty() ? nullptr : &batches_.at(to_reassign_.front());
  }
  // The one that begins with that event; null: none.
  [[nodiscard]] const Batch* find(EventNumber first) const;
  // The one that begins with that event, if this attempt of that builder unit is the latest one and
  // was not taken back; null: what was said of it is stale.
  [[nodiscard]] Batch* find_current(EventNumber first, Attempt attempt, NodeId builder);
  // The one with that event; null: none.
  [[nodiscard]] Batch* containing(EventNumber event);
  // Of each builder unit the oldest one that is assigned to it; null: there is none.
  [[nodiscard]] std::vector<const Batch*> oldest_of_each(std::size_t builder_units) const;
  // The first event that is not built. `assigned_end`: events below are assigned.
  [[nodiscard]] EventNumber decided(EventNumber assigned_end) const {
    return batches_.empty() ? assigned_end : batches_.begin()->first;
  }

  [[nodiscard]] std::size_t size() const { return batches_.size(); }
  [[nodiscard]] bool empty() const { return batches_.empty(); }
  [[nodiscard]] auto begin() { return batches_.begin(); }
  [[nodiscard]] auto end() { return batches_.end(); }
  [[nodiscard]] auto begin() const { return batches_.begin(); }
  [[nodiscard]] auto end() const { return batches_.end(); }

private:
  std::pmr::unsynchronized_pool_resource memory_; // nodes of the map, reused
  Batches batches_{&memory_};
  std::deque<EventNumber> to_reassign_; // their first events, rising
};

} // namespace fanin::builder
