/// \file
/// Values with ids that are never used twice. The low half of an id is the slot, the high half
/// counts the uses of the slot. To find a value takes an index and a comparison; values do not
/// move. A slot with no uses left is not used again. The two highest bits of an id are always free
/// for its owner.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

namespace fanin::net {

template <class Id, class T>
class SlotMap {
public:
  static constexpr std::uint32_t uses_max = 1U << 30;

  /// `first_use`: for tests, of all slots.
  explicit SlotMap(std::uint32_t first_use = 0) : first_use_(first_use) {}

  template <class... Arguments>
  std::pair<Id, T&> emplace(Arguments&&... arguments) {
    std::uint32_t index = 0;
    if (free_.empty()) {
      index = static_cast<std::uint32_t>(slots_.size());
      slots_.push_back({.value = nullptr, .uses = first_use_});
    } else {
      index = free_.back();
      free_.pop_back();
    }
    Slot& slot = slots_[index];
    slot.value = std::make_unique<T>(std::forward<Arguments>(arguments)...);
    ++size_;
    return {static_cast<Id>((std::uint64_t{slot.uses} << 32) | (index + 1)), *slot.value};
  }

  [[nodiscard]] T* find(Id id) const {
    const auto number = static_cast<std::uint64_t>(id);
    const std::uint32_t index = static_cast<std::uint32_t>(number) - 1; // id 0 wraps out of range
    if (index >= slots_.size() || slots_[index].uses != number >> 32) return nullptr;
    return slots_[index].value.get();
  }

  void erase(Id id) {
    if (find(id) == nullptr) return;
    const std::uint32_t index = static_cast<std::uint32_t>(id) - 1;
    const auto value = std::move(slots_[index].value);
    if (++slots_[index].uses < uses_max) free_.push_back(index);
    --size_;
  }

  [[nodiscard]] std::size_t size() const { return size_; }

  /// Calls `visit` in the order of slots; it may erase.
  template <class Visit>
  void for_each(Visit visit) const {
    for (std::size_t i = 0; i < slots_.size(); ++i) {
      if (slots_[i].value == nullptr) continue;
      visit(static_cast<Id>((std::uint64_t{slots_[i].uses} << 32) | (i + 1)), *slots_[i].value);
    }
  }

private:
  struct Slot {
    std::unique_ptr<T> value;
    std::uint32_t uses = 0;
  };
  std::uint32_t first_use_;
  std::vector<Slot> slots_;
  std::vector<std::uint32_t> free_;
  std::size_t size_ = 0;
};

} // namespace fanin::net
