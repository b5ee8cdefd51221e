// Puts completions in the order of posting, where a provider gives them in any order.
#pragma once

#include <algorithm>
#include <deque>

#include "fanin/net/rdma/provider.hpp"

namespace fanin::net::ofi {

class InOrder {
public:
  void posted(rdma::Operation* operation) {
    under_way_.push_back({.completion = {.operation = operation}});
  }
  // An operation has completed. Calls to(completion) for all for which no earlier one is missing.
  template <class To>
  void completed(const rdma::Completion& completion, To to) {
    const auto found = std::ranges::find_if(under_way_, [&](const UnderWay& one) {
      return one.completion.operation == completion.operation;
    });
    if (found == under_way_.end()) return;
    *found = {completion, true};
    for (; !under_way_.empty() && under_way_.front().done; under_way_.pop_front())
      to(under_way_.front().completion);
  }
  template <class To>
  void for_each_not_done(To to) const {
    for (const UnderWay& one : under_way_) {
      if (!one.done) to(one.completion.operation);
    }
  }
  // None can complete any more.
  void forget() { under_way_.clear(); }
  [[nodiscard]] std::size_t size() const { return under_way_.size(); }

private:
  struct UnderWay {
    rdma::Completion completion;
    bool done = false;
  };
  std::deque<UnderWay> under_way_;
};

} // namespace fanin::net::ofi
