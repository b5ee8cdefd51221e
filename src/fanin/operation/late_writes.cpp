#include "fanin/operation/late_writes.hpp"

#include <utility>

namespace fanin::operation {
namespace {

constexpr Duration try_again = std::chrono::seconds{2};

} // namespace

LateWrites::LateWrites(net::Loop& loop, Registry& registry, std::function<void()> on_change)
    : loop_(loop),
      registry_(registry),
      on_change_(std::move(on_change)),
      again_([this] { flush(); }) {}

void LateWrites::add(Write write) {
  writes_.push_back(std::move(write));
  if (!again_.active()) flush();
}

void LateWrites::flush() {
  std::string problem;
  while (!writes_.empty() && problem.empty()) {
    const auto done = writes_.front()(registry_);
    if (done) writes_.pop_front();
    if (!done) problem = done.error().text;
  }
  if (!problem.empty()) again_.start(loop_, loop_.now() + try_again);
  const bool changed = problem != problem_;
  problem_ = std::move(problem);
  if (changed) on_change_();
}

} // namespace fanin::operation
