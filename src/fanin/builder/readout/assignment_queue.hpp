// Batches that were assigned to a readout unit and that it cannot cut yet: metadata pages are
// missing, or sources have not answered. Those that were assigned before go first, since the pages
// that they wait for are kept for them.
#pragma once

#include <cstddef>
#include <deque>

#include "fanin/wire/control.hpp"

namespace fanin::builder {

// Knows no connection and no time.
class AssignmentQueue {
public:
  static constexpr std::size_t waiting_max = 65536; // far more than the event manager assigns

  // Calls `take(assign)` if no other batch of its kind waits. If that returns false, the batch
  // waits behind the others. False: too many wait.
  template <class Take>
  [[nodiscard]] bool add(const wire::Assign& assign, Take take) {
    auto& waiting = assign.attempt > 0 ? reassigned_ : new_;
    if (!waiting.empty() || !take(assign)) waiting.push_back(assign);
    return waiting.size() <= waiting_max;
  }

  // Something was given back: calls `take` for each one, in order, until it returns false. True: it
  // has taken one.
  template <class Take>
  bool retry(Take take) {
    bool any = false;
    for (auto* waiting : {&reassigned_, &new_}) {
      for (; !waiting->empty() && take(waiting->front()); any = true) waiting->pop_front();
      if (!waiting->empty()) break;
    }
    return any;
  }

  [[nodiscard]] bool empty() const { return reassigned_.empty() && new_.empty(); }
  void clear() {
    reassigned_.clear();
    new_.clear();
  }

private:
  std::deque<wire::Assign> reassigned_; // of batches that were assigned before
  std::deque<wire::Assign> new_;
};

} // namespace fanin::builder
