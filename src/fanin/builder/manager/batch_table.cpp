#include "fanin/builder/manager/batch_table.hpp"

#include <algorithm>

#include "fanin/base/assert.hpp"
#include "fanin/base/attempt.hpp"

namespace fanin::builder {

Batch& BatchTable::add(EventRange range, std::uint64_t bytes) {
  const auto [entry, inserted] = batches_.try_emplace(range.first);
  FANIN_ASSERT(inserted && !range.empty());
  FANIN_ASSERT(entry == batches_.begin() || std::prev(entry)->second.range.end <= range.first);
  FANIN_ASSERT(std::next(entry) == batches_.end() || range.end <= std::next(entry)->first);
  entry->second.range = range;
  entry->second.bytes = bytes;
  return entry->second;
}

void BatchTable::assign(Batch& batch, const Assignment& assignment) {
  batch.state = BatchState::assigned;
  if (batch.builder_incarnation != 0) { // it was assigned before
    FANIN_ASSERT(!to_reassign_.empty() && to_reassign_.front() == batch.range.first);
    to_reassign_.pop_front();
    batch.attempt = next_attempt(batch.attempt);
  }
  batch.builder = assignment.builder;
  batch.builder_incarnation = assignment.incarnation;
  batch.epoch = assignment.epoch;
  batch.reservation = assignment.reservation;
}

void BatchTable::take_back(Batch& batch) {
  batch.state = BatchState::unassigned;
  batch.missing.clear();
  batch.missing_fragments = batch.missing_members = 0;
  batch.bad.clear();
  to_reassign_.insert(std::ranges::upper_bound(to_reassign_, batch.range.first), batch.range.first);
}

const Batch* BatchTable::find(EventNumber first) const {
  const auto found = batches_.find(first);
  return found == batches_.end() ? nullptr : &found->second;
}

Batch* BatchTable::find_current(EventNumber first, Attempt attempt, NodeId builder) {
  const auto found = batches_.find(first);
  if (found == batches_.end()) return nullptr;
  Batch& batch = found->second;
  const bool current =
      batch.state != BatchState::unassigned && batch.attempt == attempt && batch.builder == builder;
  return current ? &batch : nullptr;
}

std::vector<const Batch*> BatchTable::oldest_of_each(std::size_t builder_units) const {
  std::vector<const Batch*> oldest(builder_units);
  for (const auto& [first, batch] : batches_) {
    if (batch.state == BatchState::unassigned) continue;
    if (const Batch*& found = oldest[batch.builder]; found == nullptr) found = &batch;
  }
  return oldest;
}

Batch* BatchTable::containing(EventNumber event) {
  const auto after = batches_.upper_bound(event);
  if (after == batches_.begin()) return nullptr;
  Batch& batch = std::prev(after)->second;
  return batch.range.contains(event) ? &batch : nullptr;
}

} // namespace fanin::builder
