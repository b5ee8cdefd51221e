#include "fanin/builder/manager/dispatcher.hpp"

#include <algorithm>
#include <utility>

#include "fanin/base/attempt.hpp"
#include "fanin/builder/manager/node_messages.hpp"
#include "fanin/builder/metadata.hpp"

namespace fanin::builder {

namespace {
// Assigned and not built: tiny batches are bounded by their number, not by their bytes. Nodes hold
// far more (ReadoutUnit, BuilderUnit).
constexpr std::size_t batches_max = 16384;
} // namespace

Dispatcher::Dispatcher(const Parts& parts)
    : parts_(parts),
      capacity_(parts.readouts.size(), parts.builders.size(), parts.system.batch_size,
                parts.system.transfer_window, parts.system.in_order),
      choice_(make_assigner(parts.system), parts.builders.size(), parts.system.batch_events,
              parts.system.batch_size),
      lagging_(parts.builders.size()),
      merged_(parts.system.merged_sources()) {}

// --- nodes ---------------------------------------------------------------------------------------

void Dispatcher::readout_up(NodeId node, std::uint64_t memory, std::uint64_t metadata) {
  capacity_.readout_up(node, memory, metadata);
  members_changed_ = true;
  try_again();
}

// What it had announced is lost, unless it was sent before.
void Dispatcher::readout_down(NodeId node) {
  capacity_.readout_down(node);
  members_changed_ = true;
  try_again();
  if (!parts_.announced.readout(node).begun()) return;
  std::vector<std::vector<wire::MissingRange>> lost(parts_.builders.size());
  for (auto& [first, batch] : batches_) {
    const auto before = static_cast<std::ptrdiff_t>(batch.lost.size());
    parts_.announced.add_fragments(node, batch.range, batch.lost);
    if (batch.state == BatchState::unassigned) continue; // said when it is assigned again
    auto& said = lost[batch.builder];
    said.insert(said.end(), batch.lost.begin() + before, batch.lost.end());
  }
  for (std::size_t i = 0; i < lost.size(); ++i) {
    if (!lost[i].empty()) send_lost(parts_.outbox, static_cast<NodeId>(i), lost[i]);
  }
}

void Dispatcher::builder_up(NodeId node, std::uint64_t capacity) {
  capacity_.builder_up(node, capacity);
  lagging_[node] = false;
  members_changed_ = true;
  try_again();
}

std::uint64_t Dispatcher::builder_down(NodeId node) {
  capacity_.builder_down(node);
  try_again();
  std::uint64_t events = 0;
  for (auto& [first, batch] : batches_) {
    if (batch.state == BatchState::unassigned || batch.builder != node) continue;
    take_back(batch);
    events += wire::events_of(batch.range, batch.gaps);
  }
  return events;
}

// From here on assignments name this set of readout units. Said once per turn, and only once the
// run is on: a thousand nodes that come up one by one are one change.
void Dispatcher::publish_members() {
  if (!std::exchange(members_changed_, false)) return;
  std::vector<Incarnation> incarnations;
  for (std::size_t i = 0; i < parts_.readouts.size(); ++i) {
    const auto node = static_cast<NodeId>(i);
    incarnations.push_back(parts_.readouts.present(node) ? parts_.readouts.incarnation(node) : 0);
  }
  const std::uint64_t epoch = epochs_.begin(incarnations);
  const auto count = static_cast<std::uint32_t>(incarnations.size());
  parts_.outbox.send_to_builders(wire::Members{epoch, count, 0, began_unix_ns_}, incarnations);
}

// --- assigning -----------------------------------------------------------------------------------

void Dispatcher::assign_batches(Time now) {
  if (parts_.paths.update(now)) try_again();
  if (no_room_ || !reassign()) return; // the old ones first
  if (!batches_.empty() && !parts_.announced.has_room(decided())) return;
  const EventNumber end = parts_.announced.assignable_end();
  while (parts_.announced.assigned_end() < end && batches_.size() < batches_max &&
         parts_.outbox.readouts_roomy()) {
    if (!skip_gap(end) && !assign_next(end, now)) return;
  }
}

// False: some are still waiting for room.
bool Dispatcher::reassign() {
  while (Batch* const batch = batches_.next_to_reassign()) {
    if (!parts_.outbox.readouts_roomy()) return false;
    const AssignmentRequest request{batch->range, batch->bytes, next_attempt(batch->attempt)};
    const auto node = choose(request, batch->handed_back);
    no_room_ = !node.has_value();
    if (no_room_) return false;
    assign(*batch, request, *node);
  }
  return true;
}

// Numbers that no source has need no batch, however many they are. False: there are none.
bool Dispatcher::skip_gap(EventNumber end) {
  if (parts_.trigger.enabled()) return false;
  const EventNumber first = parts_.announced.assigned_end();
  const EventRange gap{first, parts_.announced.present_from(first, end)};
  if (gap.empty()) return false;
  parts_.accounts.gap(gap);
  if (skipped_ && skipped_->end == gap.first) {
    skipped_->end = gap.end;
  } else {
    skipped_ = {gap.first, gap.end};
  }
  parts_.outbox.send_to_readouts(wire::Clear{gap.first, gap.end});
  parts_.announced.move_to(gap.end);
  return true;
}

// False: there is no room for it now.
bool Dispatcher::assign_next(EventNumber end, Time now) {
  ++examined_;
  Cut cut = parts_.announced.next_cut(end);
  if (cut.range.empty()) return false;
  std::vector<wire::Gap> gaps;
  if (!parts_.trigger.enabled()) gaps = parts_.announced.gaps_in(cut.range);
  const AssignmentRequest request{cut.range, cut.bytes, 0};
  const auto node = choose(request, {});
  no_room_ = !node.has_value();
  if (no_room_) return false;
  Batch& batch = batches_.add(cut.range, cut.bytes);
  batch.cut_unix_ns = unix_ns(now);
  batch.gaps = std::move(gaps);
  if (skipped_) batch.gaps.insert(batch.gaps.begin(), *std::exchange(skipped_, {}));
  parts_.announced.add_lost(cut.range, batch.lost);
  parts_.announced.add_unread(cut.range, batch.lost);
  count_events(batch);
  assign(batch, request, *node);
  bytes_per_event_ = std::max<std::uint64_t>(1, cut.bytes / cut.range.count());
  parts_.announced.move_to(cut.range.end);
  return true;
}

void Dispatcher::count_events(const Batch& batch) {
  events_cut_ += wire::events_of(batch.range, batch.gaps);
  EventNumber first = batch.range.first; // of those that follow each other without a gap
  const auto count_until = [&](EventNumber end) {
    if (first >= end) return;
    const std::uint64_t step = end - first > 1 ? 1 : last_event_ ? first - *last_event_ : 0;
    if (step != 0) least_step_ = least_step_ == 0 ? step : std::min(least_step_, step);
    last_event_ = end - 1;
  };
  for (const wire::Gap& gap : batch.gaps) {
    count_until(gap.first);
    first = std::max(first, gap.end);
  }
  count_until(batch.range.end);
}

std::optional<NodeId> Dispatcher::choose(const AssignmentRequest& request,
                                         std::optional<NodeId> handed_back) {
  using Answer = BuilderChoice::Answer;
  const Capacity::Need need{request.bytes, metadata_per_source(request.range.count())};
  const auto use = request.attempt > 0 ? Capacity::Use::reassignment : Capacity::Use::first_attempt;
  return choice_.choose(request, handed_back, [&](NodeId node) {
    if (!parts_.builders.present(node) || !parts_.paths.reached(node)) return Answer::unusable;
    if (!parts_.outbox.roomy(builder_key(node))) return Answer::unusable;
    return capacity_.has_room(node, need, use) ? Answer::has_room : Answer::no_room;
  });
}

void Dispatcher::assign(Batch& batch, const AssignmentRequest& request, NodeId node) {
  const Capacity::Need need{request.bytes, metadata_per_source(request.range.count())};
  choice_.assigned(node, request);
  epochs_.enter(epochs_.current());
  batches_.assign(batch, {.builder = node,
                          .incarnation = parts_.builders.incarnation(node),
                          .epoch = epochs_.current(),
                          .reservation = capacity_.reserve(node, need)});
  send_assignment(parts_.outbox, batch, parts_.seal_key);
  if (parts_.system.protocol == Protocol::push || lagging_[node]) {
    parts_.outbox.send_to_readouts(assignment_of(batch, parts_.seal_key));
  }
}

void Dispatcher::take_back(Batch& batch) {
  epochs_.leave(batch.epoch);
  choice_.ended(batch.builder, batch.bytes);
  batches_.take_back(batch);
}

// --- what builder units say ----------------------------------------------------------------------

void Dispatcher::on_received(NodeId builder, const wire::Received& received) {
  Batch* const batch = batches_.find_current(received.first, received.attempt, builder);
  if (batch == nullptr) return;
  if (received.set_aside != 0) {
    if (batch->state != BatchState::received) return;
    batches_.set_aside(*batch);
    capacity_.release(builder, batch->reservation);
    return;
  }
  if (batch->state != BatchState::assigned) return;
  batches_.received(*batch);
  capacity_.received(builder, batch->reservation);
  lagging_[builder] = false;
}

void Dispatcher::release(const Batch& batch) {
  if (batch.state != BatchState::set_aside) capacity_.release(batch.builder, batch.reservation);
}

// There is such a source, and such a member of it.
bool Dispatcher::has(const wire::MissingRange& run) const {
  const std::size_t source = parts_.sources.find(run.source);
  if (source == System::npos) return false;
  if (run.within == 0) return true;
  const auto& merged = parts_.system.sources[source].merged;
  const bool all = run.does_not_fit() && !merged.empty();
  return all || std::ranges::binary_search(merged, run.member, {}, &storage::SourceInfo::id);
}

// However many messages say so, no more fragments are missing or damaged than the batch has.
bool Dispatcher::add_exceptions(Batch& batch, std::span<const wire::MissingRange> missing,
                                std::span<const wire::BadFragment> bad) const {
  for (const wire::MissingRange& run : missing) {
    if (run.count == 0 || run.first < batch.range.first || run.first > batch.range.end ||
        run.count > batch.range.end - run.first || !has(run))
      return false;
    (run.within == 0 ? batch.missing_fragments : batch.missing_members) += run.count;
  }
  const bool inside = std::ranges::all_of(bad, [&](const wire::BadFragment& one) {
    return batch.range.contains(one.event) && parts_.sources.find(one.source) != System::npos;
  });
  const std::uint64_t fragments = batch.range.count() * parts_.system.sources.size();
  if (!inside || batch.missing_fragments > fragments ||
      batch.missing_members > batch.range.count() * merged_ ||
      batch.bad.size() + bad.size() > fragments)
    return false;
  batch.missing.insert(batch.missing.end(), missing.begin(), missing.end());
  batch.bad.insert(batch.bad.end(), bad.begin(), bad.end());
  return true;
}

bool Dispatcher::on_built(NodeId builder, wire::MessageReader& reader, Time now,
                          std::optional<Decision>& decision) {
  wire::Built built;
  if (!reader.read(built)) return false;
  const auto missing = reader.records<wire::MissingRange>(built.missing_ranges);
  const auto bad = reader.records<wire::BadFragment>(built.bad);
  const bool counts = std::max({built.incomplete, built.rejected, built.undecided,
                                built.undelivered}) <= built.events;
  if (!reader.ok() || !counts) return false;
  Batch* const batch = batches_.find_current(built.first, built.attempt, builder);
  if (batch == nullptr || batch->range != built.range()) return true; // was given up
  if (!add_exceptions(*batch, missing, bad)) return false;
  if (built.more != 0) return true;
  decision = {batch->range, batch->attempt};
  account(*batch, built, now);
  release(*batch);
  parts_.outbox.send_to_readouts(wire::Clear{batch->range.first, batch->range.end});
  epochs_.leave(batch->epoch);
  choice_.ended(builder, batch->bytes);
  batches_.erase(*batch);
  return true;
}

void Dispatcher::account(Batch& batch, const wire::Built& built, Time now) {
  const auto members = epochs_.members(batch.epoch);
  parts_.accounts.built(batch, built, members, now, parts_.trigger);
  for (std::size_t i = 0; i < members.size(); ++i) {
    const auto node = static_cast<NodeId>(i);
    const bool same = members[i] != 0 && members[i] == parts_.readouts.incarnation(node);
    if (same) parts_.paths.works(node);
  }
}

// A builder unit that cannot complete an attempt. What comes of it afterwards is stale; another
// builder unit gets the next attempt, if there is one.
bool Dispatcher::on_hand_back(NodeId builder, const wire::HandBack& back,
                              std::optional<Blame>& blame) {
  if (back.blames != 0 && back.readout_unit >= parts_.readouts.size()) return false;
  Batch* const batch = batches_.find_current(back.first, back.attempt, builder);
  if (batch == nullptr) return true;
  release(*batch);
  take_back(*batch);
  batch->handed_back = builder;
  if (back.blames != 0) blame = {back.readout_unit};
  return true;
}

// A builder unit that asks for nothing would stop its readout units. So these are told directly
// what it should ask for, as in the push flow, until it asks again.
void Dispatcher::on_uncut(NodeId readout, const wire::Uncut& uncut) {
  const Batch* const held = batches_.containing(uncut.event);
  if (held == nullptr || held->state == BatchState::unassigned) return;
  lagging_[held->builder] = true;
  for (const auto& [first, batch] : batches_) {
    if (batch.state != BatchState::assigned || batch.builder != held->builder) continue;
    if (!parts_.outbox.roomy(readout_key(readout))) return;
    parts_.outbox.send(readout_key(readout), assignment_of(batch, parts_.seal_key));
  }
}

} // namespace fanin::builder
