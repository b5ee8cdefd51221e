#include "fanin/source/fragment_queue.hpp"

#include <algorithm>

#include "fanin/memory/copy.hpp"
#include "fanin/source/event_numbers.hpp"

namespace fanin::source {

FragmentQueue::FragmentQueue(const FragmentQueueOptions& options, memory::PagePool& pool)
    : options_(options),
      table_(options.window),
      pages_(pool),
      numbers_(std::make_unique<EventNumbers>(options_, table_, pages_, fast_)) {
  FANIN_ASSERT(options.fragment_max <= wire::fragment_size_mask);
}

FragmentQueue::~FragmentQueue() = default;

void FragmentQueue::start(EventNumber first) {
  forget_all();
  numbers_->join(first);
}

void FragmentQueue::start_unnumbered() {
  forget_all();
  numbers_->start();
}

void FragmentQueue::forget_all() {
  numbers_->end_positions();
  pages_.clear();
  missing_ = 0;
  writing_ = Writing::none;
}

EventNumber FragmentQueue::limit() const { return numbers_->limit(); }

wire::FragmentEntry FragmentQueue::entry_below(EventNumber event) const {
  return wire::FragmentEntry::make_absent(numbers_->reason_below(event));
}

// Everything that is not the next number in the room at hand.
WriteOutcome FragmentQueue::begin_slow(std::uint64_t counter, std::uint32_t size) {
  using Action = EventNumbers::Action;
  const EventNumbers::Decision decision = numbers_->offer(counter, size);
  if (decision.action == Action::drop) return WriteOutcome::rejected;
  if (decision.action == Action::wait) return WriteOutcome::full;
  if (size > options_.fragment_max || !pages_.could_hold(size)) {
    numbers_->drop_fragment(decision, wire::DropReason::oversize);
    return WriteOutcome::rejected;
  }
  const std::uint64_t end = pages_.position();
  const bool has_room = pages_.make_room(size, table_.empty());
  numbers_->leave_bytes(pages_.position() - end);
  if (!has_room) {
    if (!numbered() || decision.event >= table_.next() || decision.action == Action::compare) {
      fast_.throttled = true;
      return WriteOutcome::full;
    }
    // What fills all pages is of no use if the counter was reset.
    numbers_->drop_fragment(decision, wire::DropReason::number_back);
    return WriteOutcome::rejected;
  }
  missing_ = size;
  crc_ = 0;
  if (decision.action == Action::take) {
    numbers_->take(decision.event);
    writing_ = Writing::open;
    table_.next_slot().position = pages_.position();
  } else {
    writing_ = decision.action == Action::hold ? Writing::to_hold : Writing::to_compare;
    detached_ = {decision.event, pages_.position()};
  }
  return WriteOutcome::ok;
}

void FragmentQueue::end_detached(std::uint32_t flags) {
  const auto [event, position] = detached_;
  const auto size = static_cast<std::uint32_t>(pages_.position() - position);
  if (writing_ == Writing::to_compare) {
    numbers_->compare(event, {size, crc_});
    return cancel();
  }
  if (writing_ == Writing::given_up || numbers_->is_passed(event)) {
    numbers_->drop(event, wire::DropReason::late);
    return cancel();
  }
  numbers_->hold(event, {position, {size | flags, crc_}});
  writing_ = Writing::none;
}

WriteOutcome FragmentQueue::write(EventNumber event, std::span<const std::byte> payload,
                                  std::uint32_t flags) {
  const auto size = static_cast<std::uint32_t>(
      std::min<std::size_t>(payload.size(), std::size_t{options_.fragment_max} + 1));
  const auto copy = [&](std::span<std::byte> room) {
    memory::copy(room.data(), payload.first(room.size()));
  };
  if (flags == 0 && !payload.empty() && write_next(event, size, copy)) return WriteOutcome::ok;
  const WriteOutcome outcome = begin(event, size);
  if (outcome != WriteOutcome::ok) return outcome;
  while (!payload.empty()) {
    const auto space = room();
    memory::copy(space.data(), payload.first(space.size()));
    advance(static_cast<std::uint32_t>(space.size()));
    payload = payload.subspan(space.size());
  }
  const bool compared = writing_ == Writing::to_compare;
  end(flags);
  return compared ? WriteOutcome::rejected : WriteOutcome::ok;
}

void FragmentQueue::cancel() {
  pages_.take_back(writing_ == Writing::open ? table_.next_slot().position : detached_.position);
  missing_ = 0;
  writing_ = Writing::none;
}

bool FragmentQueue::skip_to(EventNumber event) {
  FANIN_ASSERT(writing_ == Writing::none);
  return numbers_->skip_to(event);
}

bool FragmentQueue::give_up_until(EventNumber event, wire::AbsentReason why) {
  const Detached next{table_.next(), table_.next_slot().position};
  if (!numbers_->give_up_until(event, why)) return false;
  if (writing_ == Writing::open && table_.next() != next.event) {
    writing_ = Writing::given_up;
    detached_ = next;
  }
  return true;
}

EventNumber FragmentQueue::sent_from(EventNumber event) const {
  const auto dropped = wire::FragmentEntry::make_absent(wire::AbsentReason::dropped);
  event = std::max(event, table_.base());
  if (event >= table_.absent_end()) return event;
  for (; event < table_.next(); event = alike_until(event)) {
    const wire::FragmentEntry entry = table_.entry(event);
    if (!entry.absent() || entry == dropped) break;
  }
  return event;
}

Piece FragmentQueue::cut(Cursor& cursor, EventNumber end, std::uint32_t payload_max,
                         std::uint32_t entries_max, wire::FragmentEntry* table) const {
  const EventNumber first = cursor.event;
  const wire::FragmentEntry head = entry(first);
  if (cursor.payload_offset != 0 || head.size() > payload_max ||
      head.size() > pages_.to_page_end(position(first))) {
    const std::uint64_t at = position(first) + cursor.payload_offset;
    const std::uint32_t size =
        std::min({head.size() - cursor.payload_offset, payload_max, pages_.to_page_end(at)});
    const Piece piece{{first, first + 1}, cursor.payload_offset, true, pages_.view(at, size)};
    table[0] = head;
    cursor.payload_offset += size;
    if (cursor.payload_offset == head.size()) cursor = {first + 1, 0};
    return piece;
  }

  EventNumber event = first;
  const EventNumber stop = std::min(end, first + entries_max);
  for (; event < stop && event < table_.base(); ++event) table[event - first] = entry(event);
  std::uint64_t start = 0;
  std::uint32_t bytes = 0;
  // False: its payload does not follow the others in this page.
  const auto add = [&](const FragmentTable::Slot& slot) {
    const std::uint32_t size = slot.entry.size();
    if (size != 0) {
      if (bytes == 0) start = slot.position;
      if (slot.position != start + bytes || size > payload_max - bytes ||
          bytes + size > pages_.to_page_end(start)) {
        return false;
      }
      bytes += size;
    }
    table[event - first] = slot.entry;
    return true;
  };
  for (bool fits = true; fits && event < stop;) {
    const FragmentTable::Section at = table_.section(event);
    const EventNumber until = std::min(stop, at.end);
    if (at.gap != nullptr) {
      std::fill(table + (event - first), table + (until - first),
                wire::FragmentEntry::make_absent(at.gap->why));
      event = until;
    }
    for (; event < until && (fits = add(table_.slot(event, at))); ++event) {
    }
  }
  cursor = {event, 0};
  return {{first, event}, 0, false, pages_.view(start, bytes)};
}

void FragmentQueue::release_until(EventNumber event) {
  event = std::min(event, table_.next());
  if (event <= table_.base()) return;
  pages_.release_until(position(event));
  numbers_->remember_until(event);
  table_.release_until(event);
  numbers_->find_fast_end();
}

} // namespace fanin::source
