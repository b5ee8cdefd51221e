// Which events become a batch, and which builder unit gets it.
#include "fanin/builder/event_manager.hpp"

#include <algorithm>

#include "fanin/builder/metadata.hpp"
#include "fanin/wire/fragment.hpp"

namespace fanin::builder {

namespace {
// What a source's parts add to its payload: per event a table entry, per part a header, a frame and
// padding; parts beyond the first come with every message's worth of payload.
constexpr std::uint64_t part_overhead = 256;
std::uint64_t metadata_bytes(std::uint64_t events, std::uint64_t sources, std::uint64_t payload) {
  return sources * (events * sizeof(wire::FragmentEntry) + part_overhead) + payload / 512;
}
// Assigned and not built: tiny batches are bounded by their number, not by their bytes. Nodes hold
// far more (ReadoutUnit, BuilderUnit).
constexpr std::size_t batches_max = 16384;

void add_run(std::deque<EventRange>& runs, EventRange run) {
  if (run.empty()) return;
  if (!runs.empty() && runs.back().end == run.first) {
    runs.back().end = run.end;
  } else {
    runs.push_back(run);
  }
}
} // namespace

bool EventManager::on_announce(Readout& readout, const wire::Announce& announce,
                               std::span<const wire::AbsentRun> absent) {
  const EventRange range{announce.first, announce.end};
  if (announce.end < announce.first || announce.end > event_number_end ||
      (announce.nothing == 0 && range.count() > system_.batch_events) ||
      (announce.nothing != 0 && !absent.empty()) || readout.final ||
      (readout.announced_any && announce.first != readout.end) ||
      !can_be_absent(readout, range, absent)) {
    return false;
  }
  if (!readout.announced_any) {
    readout.announced_any = true;
    readout.first = announce.first;
  }
  const auto node = static_cast<NodeId>(&readout - readouts_.data());
  const std::size_t first_source = system_.sources_of(node).first;
  auto& ledger = readout.ledgers.back();
  if (announce.nothing == 0) {
    for (auto& source : ledger) source.read += range.count();
  } else {
    for (auto& runs : readout.absent) add_run(runs, range);
  }
  for (const auto& run : absent) {
    const std::size_t local = sources_.find(run.source) - first_source;
    ledger[local].read -= run.count();
    auto& known = readout.absent[local];
    while (!known.empty() && known.front().end <= decided()) known.pop_front();
    add_run(known, run.range());
  }
  if (announce.nothing == 0) note_dropped(readout, range, absent);
  readout.end = announce.end;
  readout.bytes += announce.bytes;
  if (!range.empty()) {
    readout.points.push_back({announce.end, readout.bytes});
    readout.announced_at = fair_;
    readout.passed_over = false;
    const bool jump = announce.nothing != 0 && range.count() >= system_.event_window;
    readout.in_a_row = jump ? 0 : readout.in_a_row + (announce.nothing != 0 ? 0 : range.count());
  }
  readout.final = announce.final != 0;
  if (!range.empty()) readout.silent = announce.silent != 0;
  horizon_ = std::max(horizon_, announce.end);
  return true;
}

// What was dropped was sent for an event, whoever else has it: those numbers are no gaps.
void EventManager::note_dropped(Readout& readout, EventRange range,
                                std::span<const wire::AbsentRun> absent) {
  std::vector<EventRange> dropped;
  for (const auto& run : absent) {
    if (run.dropped()) dropped.push_back(run.range());
  }
  std::ranges::sort(dropped, {}, &EventRange::first);
  auto& nothing_sent = readout.absent.back();
  while (!nothing_sent.empty() && nothing_sent.front().end <= decided()) nothing_sent.pop_front();
  for (const EventRange& run : dropped) {
    if (run.first > range.first) add_run(nothing_sent, {range.first, run.first});
    range.first = std::max(range.first, run.end);
  }
  add_run(nothing_sent, range);
}

// Its numbers fell. As long as no batch begins anywhere, what it has announced can be taken back.
void EventManager::on_begin(Readout& readout) {
  const bool yes = !frontier_known_ && readout.announced_any;
  if (yes) {
    environment_.log(
        LogLevel::warning,
        fmt::format("readout unit '{}' begins afresh: its event numbers fell below {}",
                    system_.readout_units[static_cast<std::size_t>(&readout - readouts_.data())],
                    readout.end));
    readout.announced_any = readout.final = readout.silent = false;
    readout.first = readout.end = 0;
    readout.bytes = 0;
    readout.points.clear();
    for (auto& absent : readout.absent) absent.clear();
    for (auto& source : readout.ledgers.back()) source.read = 0;
    horizon_ = 0;
    for (const auto& other : readouts_) {
      if (other.announced_any) horizon_ = std::max(horizon_, other.end);
      for (const auto& past : other.past) horizon_ = std::max(horizon_, past.range.end);
    }
  }
  readout.peer->channel.append(wire::Begin{.horizon = agreed_horizon(), .yes = yes ? 1U : 0U});
}

// Runs inside the range and of the readout unit's own sources, source by source, none overlapping.
bool EventManager::can_be_absent(const Readout& readout, EventRange range,
                                 std::span<const wire::AbsentRun> absent) const {
  const auto node = static_cast<NodeId>(&readout - readouts_.data());
  const auto [first, last] = system_.sources_of(node);
  std::size_t source = first;
  EventNumber free = range.first;
  for (const auto& run : absent) {
    const std::size_t of = sources_.find(run.source);
    if (of < source || of >= last) return false;
    if (of != source) free = range.first;
    source = of;
    if (run.first < free || run.first > range.end || run.count() > range.end - run.first) {
      return false;
    }
    free = run.range().end;
  }
  return true;
}

// Batches begin where the first of the readout units that are here begins. One that came to its end
// without a single event has no say.
void EventManager::find_frontier() {
  if (frontier_known_) return;
  bool any = false;
  EventNumber first = event_number_end;
  for (const auto& readout : readouts_) {
    if (!readout.peer) continue;
    if (!readout.announced_any) return;
    any = true;
    if (readout.end != readout.first || !readout.final) first = std::min(first, readout.first);
  }
  if (!any || (state_ == State::running && apart())) return;
  frontier_known_ = true;
  frontier_ = first_event_ = first == event_number_end ? horizon_ : first;
  if (system_.events_max == 0) return;
  limit_ = first_event_ + std::min(system_.events_max, event_number_end);
  tell_readouts(wire::Limit{limit_, 0, limit_});
}

// All live readout units have announced the events below.
EventNumber EventManager::assignable_end() const {
  if (!frontier_known_) return frontier_;
  EventNumber end = ~EventNumber{0};
  bool any = false;
  bool all_final = true;
  for (const auto& readout : readouts_) {
    if (!readout.peer) continue;
    any = true;
    if (readout.final) continue; // absent from its end on
    all_final = false;
    end = std::min(end, readout.announced_any ? readout.end : frontier_);
  }
  if (!any) return frontier_;
  return all_final ? std::max(horizon_, frontier_) : end;
}

std::uint64_t EventManager::announced_bytes(const Readout& readout, EventNumber event) const {
  const auto point = std::ranges::lower_bound(readout.points, event, {}, &AnnouncePoint::end);
  return point == readout.points.end() ? readout.bytes : point->bytes;
}

// The next batch: up to a multiple of batch_events, or until it has enough bytes. It ends where
// readout units have announced, since there the sizes are known; between, the next larger one
// bounds.
EventManager::Cut EventManager::next_cut(EventNumber end) const {
  const EventNumber boundary = (frontier_ | (system_.batch_events - 1)) + 1;
  const EventNumber stop = std::min(end, boundary);
  Cut cut{{frontier_, frontier_}, 0};
  while (cut.range.end < stop) {
    EventNumber candidate = stop;
    for (const auto& readout : readouts_) {
      if (!readout.peer) continue;
      const auto point =
          std::ranges::upper_bound(readout.points, cut.range.end, {}, &AnnouncePoint::end);
      if (point != readout.points.end()) candidate = std::min(candidate, point->end);
    }
    std::uint64_t payload = 0;
    for (const auto& readout : readouts_) {
      if (readout.peer) payload += announced_bytes(readout, candidate) - readout.floor_bytes;
    }
    const std::uint64_t bytes =
        payload + metadata_bytes(candidate - frontier_, system_.sources.size(), payload);
    if (bytes > system_.batch_bytes && !cut.range.empty()) break;
    cut = {{frontier_, candidate}, bytes};
  }
  return cut;
}

// What readout units keep until it is built, divided by the builder units and one more for what
// lies between: so much of it one that is slow or frozen may pin, and the others go on.
EventManager::Share EventManager::fair_share() const {
  Share all{0, ~std::uint64_t{0}};
  for (const auto& readout : readouts_) {
    if (!readout.peer) continue;
    all.memory += readout.memory;
    all.metadata = std::min(all.metadata, readout.metadata);
  }
  const std::size_t shares = 1 + builders_up();
  return {all.memory / shares, all.metadata / shares};
}

// Round robin over the builder units that have room for all of it. A part of each one's capacity is
// kept for batches of builder units that died, so that those cannot be crowded out by new ones. The
// parts of what would be one batch at a higher rate stay together: then a page of a readout unit is
// held by few builder units, and a frozen one cannot pin them all.
std::optional<NodeId> EventManager::choose(const Cut& cut, const Batch* again) {
  const bool stay = again == nullptr && (frontier_ & (system_.batch_events - 1)) != 0 &&
                    together_bytes_ < system_.batch_bytes;
  const std::size_t first = next_builder_ + builders_.size() - (stay ? 1 : 0);
  std::optional<NodeId> last_choice;
  bool others = false;
  for (std::size_t i = 0; i < builders_.size(); ++i) {
    const auto node = static_cast<NodeId>((first + i) % builders_.size());
    const Builder& builder = builders_[node];
    if (!builder.peer || builder.finished || !builder.reached || !builder.peer->channel.roomy()) {
      continue;
    }
    const bool gave_back = again != nullptr && again->handed_back == node;
    others = others || !gave_back;
    if (!has_room(builder, cut, again != nullptr)) continue;
    if (!gave_back) return node;
    last_choice = node;
  }
  return others ? std::nullopt : last_choice;
}

bool EventManager::has_room(const Builder& builder, const Cut& cut, bool again) const {
  const std::uint64_t metadata = metadata_per_source(cut.range.count());
  const Share share = fair_share();
  const std::uint64_t reserve = std::min(builder.capacity / 4, 2 * system_.batch_bytes);
  const std::uint64_t capacity =
      again ? builder.capacity : std::min(builder.capacity - reserve, share.memory);
  const bool room =
      builder.reserved == 0 || (builder.reserved + cut.bytes <= capacity &&
                                (again || builder.metadata + metadata <= share.metadata));
  const bool window =
      builder.under_way == 0 || builder.under_way + cut.bytes <= system_.transfer_window;
  return room && window;
}

// A readout unit that is behind with what it was told is told of no further batch: what the event
// manager has to say is bounded, and its sources are held back.
bool EventManager::readouts_roomy() {
  return std::ranges::all_of(
      readouts_, [](auto& readout) { return !readout.peer || readout.peer->channel.roomy(); });
}

void EventManager::assign_batches() {
  if (no_room_) return; // nothing has changed since nobody had any
  if (!assign_again()) return; // the old ones first
  const EventNumber end = assignable_end();
  while (frontier_ < end && batches_.size() < batches_max && readouts_roomy()) {
    if (skip_gap(end)) continue;
    ++looks_for_batches_;
    Cut cut = next_cut(end);
    if (cut.range.empty()) return;
    auto gaps = gaps_in(cut.range);
    const auto node = choose(cut, nullptr);
    no_room_ = !node.has_value();
    if (no_room_) return;
    Batch& batch = batches_[cut.range.first];
    batch.range = cut.range;
    batch.bytes = cut.bytes;
    batch.gaps = std::move(gaps);
    if (skipped_) batch.gaps.insert(batch.gaps.begin(), *std::exchange(skipped_, {}));
    batch.lost = lost_in(cut.range);
    send_assignment(batch, *node);
    bytes_per_event_ = std::max<std::uint64_t>(1, cut.bytes / cut.range.count());
    move_frontier(cut.range.end);
  }
}

void EventManager::move_frontier(EventNumber event) {
  frontier_ = event;
  for (auto& readout : readouts_) {
    while (!readout.points.empty() && readout.points.front().end <= frontier_) {
      readout.floor_bytes = readout.points.front().bytes;
      readout.points.pop_front();
    }
    std::erase_if(readout.past, [&](const Announced& past) { return past.range.end <= event; });
  }
}

// False: some are still waiting for room.
bool EventManager::assign_again() {
  while (!again_.empty()) {
    if (!readouts_roomy()) return false;
    Batch& batch = batches_.at(again_.front());
    const auto node = choose({batch.range, batch.bytes}, &batch);
    no_room_ = !node.has_value();
    if (no_room_) return false;
    ++batch.attempt;
    batch.received = false;
    send_assignment(batch, *node);
    again_.pop_front();
  }
  return true;
}

void EventManager::send_assignment(Batch& batch, NodeId node) {
  Builder& builder = builders_[node];
  together_bytes_ = next_builder_ == node + 1U ? together_bytes_ + batch.bytes : batch.bytes;
  next_builder_ = node + 1U;
  batch.builder = node;
  batch.builder_incarnation = builder.incarnation;
  batch.epoch = epoch_;
  ++members_.at(epoch_).batches;
  batch.reservation = builder.returned + builder.reservations.size();
  builder.reserved += batch.bytes;
  builder.under_way += batch.bytes;
  const std::uint64_t metadata = metadata_per_source(batch.range.count());
  builder.metadata += metadata;
  builder.reservations.push_back({batch.range.first, batch.bytes, metadata, false});

  const wire::Assign assign = assignment_of(batch);
  send_to_builder(builder, batch, assign);
  if (system_.protocol == Protocol::push || builder.lagging) tell_readouts(assign);
}

wire::Assign EventManager::assignment_of(const Batch& batch) {
  wire::Assign assign;
  assign.first = batch.range.first;
  assign.events = static_cast<std::uint32_t>(batch.range.count());
  assign.attempt = batch.attempt;
  assign.builder = batch.builder;
  assign.builder_incarnation = batch.builder_incarnation;
  assign.epoch = batch.epoch;
  assign.bytes = batch.bytes;
  return assign;
}

// Pull: a builder unit that does not ask for its batches holds up a readout unit. It is told itself
// what it would be asked for, as in the push flow, until that builder unit goes on.
void EventManager::on_uncut(Readout& readout, const wire::Uncut& uncut) {
  auto found = batches_.upper_bound(uncut.event);
  if (found == batches_.begin()) return;
  const Batch& held = (--found)->second;
  if (!held.range.contains(uncut.event) || held.builder_incarnation == 0) return;
  builders_[held.builder].lagging = true;
  for (const auto& [first, batch] : batches_) {
    const bool same = batch.builder_incarnation != 0 && batch.builder == held.builder;
    if (!same || batch.received) continue;
    if (!readout.peer->channel.roomy()) return;
    readout.peer->channel.append(assignment_of(batch));
  }
}

// A builder unit that cannot complete an attempt. What comes of it afterwards is stale; another
// builder unit gets the next attempt, if there is one.
bool EventManager::on_hand_back(Builder& builder, NodeId node, const wire::HandBack& back) {
  if (back.blames != 0 && back.readout_unit >= readouts_.size()) return false;
  const auto found = batches_.find(back.first);
  if (found == batches_.end()) return true;
  Batch& batch = found->second;
  if (batch.attempt != back.attempt || batch.builder != node ||
      batch.builder_incarnation != builder.incarnation) {
    return true;
  }
  release(builder, batch);
  take_back(batch);
  batch.handed_back = node;
  if (back.blames == 0) return true;
  Readout& readout = readouts_[back.readout_unit];
  const Time now = environment_.loop->now();
  if (readout.failing_since == never) readout.failing_since = now;
  if (readout.peer && now - readout.failing_since > 2 * system_.dead_after) {
    give_up_path(back.readout_unit, "nothing of it comes anywhere");
  }
  return true;
}

// To be assigned again.
void EventManager::take_back(Batch& batch) {
  batch.builder_incarnation = 0;
  leave_epoch(batch.epoch);
  batch.missing.clear();
  batch.bad.clear();
  again_.push_back(batch.range.first);
}

void EventManager::on_received(Builder& builder, const wire::Received& received) {
  const auto found = batches_.find(received.first);
  if (found == batches_.end()) return;
  Batch& batch = found->second;
  if (batch.attempt != received.attempt || batch.builder_incarnation != builder.incarnation ||
      &builders_[batch.builder] != &builder || batch.received) {
    return;
  }
  batch.received = true;
  builder.lagging = false;
  builder.under_way -= batch.bytes;
}

// Returns what the batch had reserved. Pages are shared by neighbouring batches, so capacity comes
// back in the order in which it was given: then the pages in use are those between two points of
// each stream, and the pool's size bounds them.
void EventManager::release(Builder& builder, const Batch& batch) {
  if (!batch.received) builder.under_way -= batch.bytes;
  FANIN_ASSERT(batch.reservation >= builder.returned);
  builder.reservations[static_cast<std::size_t>(batch.reservation - builder.returned)].done = true;
  while (!builder.reservations.empty() && builder.reservations.front().done) {
    builder.reserved -= builder.reservations.front().bytes;
    builder.metadata -= builder.reservations.front().metadata;
    builder.reservations.pop_front();
    ++builder.returned;
  }
}

std::uint64_t EventManager::bytes_reserved() const {
  std::uint64_t bytes = 0;
  for (const auto& builder : builders_) {
    if (builder.peer) bytes += builder.reserved + builder.metadata + builder.under_way;
  }
  return bytes;
}

// Tells readout units that others are ahead, so that they stop waiting for sources that are silent.
void EventManager::watch_laggards() {
  for (auto& readout : readouts_) {
    if (readout.peer && !readout.final && readout.end < laggard_horizon_ &&
        readout.peer->channel.roomy()) {
      say_horizon(readout, laggard_horizon_);
    }
  }
  laggard_horizon_ = agreed_horizon();
  laggard_tick_.start(*environment_.loop, environment_.loop->now() + system_.event_deadline / 4);
}

} // namespace fanin::builder
