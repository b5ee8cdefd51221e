// What happens next on the simulated network. Events are values of 24 bytes: those of the near
// future lie in the slots of a wheel, later ones in a heap. Equal times: who was scheduled first is
// first.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "fanin/base/assert.hpp"
#include "fanin/fabric/time.hpp"

namespace fanin::fabric {

struct Event {
  Picoseconds time = 0;
  std::uint64_t order = 0;
  std::uint32_t index = 0; // whose event it is
  std::uint16_t kind = 0;
  std::uint16_t detail = 0;

  [[nodiscard]] bool before(const Event& other) const {
    return time != other.time ? time < other.time : order < other.order;
  }
};
static_assert(sizeof(Event) == 24);

class EventQueue {
public:
  // A slot is 2^slot_bits picoseconds wide: best a little less than the time between two events.
  // It changes the speed only, never the order.
  explicit EventQueue(int slot_bits = 14) : slot_bits_(slot_bits) { heads_.fill(none); }

  // `time` is not before that of the last event taken.
  void add(Picoseconds time, std::uint16_t kind, std::uint32_t index, std::uint16_t detail = 0) {
    FANIN_ASSERT(time >= now_);
    place({.time = time, .order = orders_++, .index = index, .kind = kind, .detail = detail});
    ++size_;
  }

  [[nodiscard]] bool empty() const { return size_ == 0; }
  [[nodiscard]] std::size_t size() const { return size_; }
  [[nodiscard]] Picoseconds now() const { return now_; } // of the last event taken

  // The time of the next one, which there must be.
  [[nodiscard]] Picoseconds next_time() {
    fill_current();
    return current_.front().time;
  }

  Event take() {
    fill_current();
    std::ranges::pop_heap(current_, later);
    const Event event = current_.back();
    current_.pop_back();
    --size_;
    now_ = event.time;
    return event;
  }

private:
  static constexpr std::uint32_t none = ~0U;
  static constexpr std::size_t slots = 4096;
  static constexpr std::size_t words = slots / 64;

  struct Listed {
    Event event;
    std::uint32_t next = none;
  };

  static bool later(const Event& a, const Event& b) { return b.before(a); }
  [[nodiscard]] std::int64_t slot_of(Picoseconds time) const { return time >> slot_bits_; }

  void place(const Event& event) {
    const std::int64_t slot = slot_of(event.time);
    if (slot <= current_slot_) {
      current_.push_back(event);
      std::ranges::push_heap(current_, later);
    } else if (slot < current_slot_ + static_cast<std::int64_t>(slots)) {
      put_in_wheel(static_cast<std::size_t>(slot) % slots, event);
    } else {
      far_.push_back(event);
      std::ranges::push_heap(far_, later);
    }
  }

  void put_in_wheel(std::size_t slot, const Event& event) {
    std::uint32_t at = free_;
    if (at == none) {
      at = static_cast<std::uint32_t>(listed_.size());
      listed_.emplace_back();
    } else {
      free_ = listed_[at].next;
    }
    listed_[at] = {.event = event, .next = heads_[slot]};
    heads_[slot] = at;
    occupied_[slot / 64] |= 1ULL << (slot % 64);
    ++in_wheel_;
  }

  // Afterwards the next event is in front of current_.
  void fill_current() {
    FANIN_ASSERT(size_ > 0);
    while (current_.empty()) {
      current_slot_ = in_wheel_ > 0 ? next_slot() : slot_of(far_.front().time);
      open_slot(static_cast<std::size_t>(current_slot_) % slots);
      take_from_far();
    }
  }

  // In the wheel, which has events. Those in the heap are later than all of them.
  [[nodiscard]] std::int64_t next_slot() const {
    const std::size_t from = static_cast<std::size_t>(current_slot_ + 1) % slots;
    std::size_t word = from / 64;
    std::uint64_t bits = occupied_[word] & (~0ULL << (from % 64));
    while (bits == 0) {
      word = (word + 1) % words;
      bits = occupied_[word];
    }
    const std::size_t slot = word * 64 + static_cast<std::size_t>(std::countr_zero(bits));
    return current_slot_ + 1 + static_cast<std::int64_t>((slot + slots - from) % slots);
  }

  void open_slot(std::size_t slot) {
    std::uint32_t at = heads_[slot];
    heads_[slot] = none;
    occupied_[slot / 64] &= ~(1ULL << (slot % 64));
    while (at != none) {
      Listed& listed = listed_[at];
      current_.push_back(listed.event);
      const std::uint32_t next = listed.next;
      listed.next = free_;
      free_ = at;
      at = next;
      --in_wheel_;
    }
    std::ranges::make_heap(current_, later);
  }

  void take_from_far() {
    const std::int64_t end = current_slot_ + static_cast<std::int64_t>(slots);
    while (!far_.empty() && slot_of(far_.front().time) < end) {
      std::ranges::pop_heap(far_, later);
      place(far_.back());
      far_.pop_back();
    }
  }

  int slot_bits_;
  Picoseconds now_ = 0;
  std::uint64_t orders_ = 0;
  std::size_t size_ = 0;
  std::int64_t current_slot_ = -1;
  std::vector<Event> current_; // a heap: the events of this slot, and of earlier ones
  std::array<std::uint32_t, slots> heads_{};
  std::array<std::uint64_t, words> occupied_{};
  std::vector<Listed> listed_; // all that is in the wheel
  std::uint32_t free_ = none;
  std::size_t in_wheel_ = 0;
  std::vector<Event> far_; // a heap
};

} // namespace fanin::fabric
