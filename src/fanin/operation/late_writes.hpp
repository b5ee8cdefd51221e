// Writes into the registry that are done later where they cannot be done now: another process holds
// it, or its disk is full. A run that is under way does not wait for them.
#pragma once

#include <deque>
#include <functional>
#include <string>

#include "fanin/base/result.hpp"
#include "fanin/net/loop.hpp"
#include "fanin/operation/registry.hpp"

namespace fanin::operation {

// In their order. Thread: its loop. The registry outlives it.
class LateWrites {
public:
  using Write = std::function<Result<>(Registry&)>;

  // `on_change`: of problem().
  LateWrites(net::Loop& loop, Registry& registry, std::function<void()> on_change);

  void add(Write write);
  // Why they cannot be done now; empty: all are.
  [[nodiscard]] const std::string& problem() const { return problem_; }

private:
  void flush();

  net::Loop& loop_;
  Registry& registry_;
  std::deque<Write> writes_;
  std::function<void()> on_change_;
  std::string problem_;
  net::Timer again_;
};

} // namespace fanin::operation
