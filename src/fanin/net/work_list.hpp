/// \file
/// Connections that wait for something: for a visit, for pages, to be flushed. A connection has a
/// Place for each list that it can be in. It is in a list at most once and leaves it when it ends,
/// so nothing is looked up, allocated or left behind.
///
/// Thread: the loop's.
#pragma once

#include <cstddef>

#include "fanin/base/assert.hpp"

namespace fanin::net {

template <class T>
class WorkList {
public:
  /// The place of one connection in one list. A member of the connection; ends with it.
  class Place {
  public:
    explicit Place(T& owner) : owner_(&owner) {}
    Place(const Place&) = delete;
    Place& operator=(const Place&) = delete;
    ~Place() { leave(); }
    [[nodiscard]] bool listed() const { return list_ != nullptr; }
    [[nodiscard]] T& owner() const { return *owner_; }
    [[nodiscard]] Place* next() const { return next_; }
    void leave() {
      if (list_ != nullptr) list_->remove(*this);
    }

  private:
    friend class WorkList;
    T* owner_;
    WorkList* list_ = nullptr;
    Place* previous_ = nullptr;
    Place* next_ = nullptr;
  };

  WorkList() = default;
  WorkList(const WorkList&) = delete;
  WorkList& operator=(const WorkList&) = delete;
  ~WorkList() {
    while (take() != nullptr) {
    }
  }

  [[nodiscard]] bool empty() const { return first_ == nullptr; }
  [[nodiscard]] std::size_t size() const { return size_; }
  /// Null: the list is empty.
  [[nodiscard]] Place* first() const { return first_; }

  /// At the end of the list. One that is listed already stays where it is.
  void add(Place& place) { add_before(nullptr, place); }
  void add_first(Place& place) { add_before(first_, place); }
  /// `next` is a place in this list; null: the end of the list.
  void add_before(Place* next, Place& place) {
    if (place.list_ == this) return;
    FANIN_ASSERT(place.list_ == nullptr);
    place.list_ = this;
    place.next_ = next;
    place.previous_ = next == nullptr ? last_ : next->previous_;
    (place.previous_ == nullptr ? first_ : place.previous_->next_) = &place;
    (next == nullptr ? last_ : next->previous_) = &place;
    ++size_;
  }

  /// The first one leaves the list; null: the list is empty.
  T* take() {
    if (first_ == nullptr) return nullptr;
    T* const owner = first_->owner_;
    remove(*first_);
    return owner;
  }
  /// The first one goes to the end of the list; null: the list is empty.
  T* rotate() {
    if (first_ == nullptr) return nullptr;
    Place& place = *first_;
    if (&place != last_) {
      remove(place);
      add(place);
    }
    return place.owner_;
  }
  /// As many as are listed now leave the list one after the other and are visited. `visit` may add
  /// connections and may end any of them.
  template <class Visit>
  void take_each(Visit visit) {
    for (std::size_t left = size_; left > 0 && first_ != nullptr; --left) visit(*take());
  }
  template <class Predicate>
  [[nodiscard]] bool any(Predicate predicate) const {
    for (const Place* place = first_; place != nullptr; place = place->next_) {
      if (predicate(*place->owner_)) return true;
    }
    return false;
  }

private:
  void remove(Place& place) {
    (place.previous_ == nullptr ? first_ : place.previous_->next_) = place.next_;
    (place.next_ == nullptr ? last_ : place.next_->previous_) = place.previous_;
    place.list_ = nullptr;
    place.previous_ = place.next_ = nullptr;
    --size_;
  }

  Place* first_ = nullptr;
  Place* last_ = nullptr;
  std::size_t size_ = 0;
};

} // namespace fanin::net
