#include "fanin/operation/late_writes.hpp"

#include <utility>

namespace fanin::operation {
namespace {

constexpr Duration try_again = std::chrono::seconds{2};

} // namespace

LateWrites::LateWrites(net::Loop& loop, Registry& registry)
    : loop_(loop), registry_(registry), again_([this] { flush(); }) {}

void LateWrites::add(Write write) {
  writes_.push_back(std::move(write));
  if (!again_.active()) flush();
}

void LateWrites::flush() {
  problem_.clear();
  while (!writes_.empty()) {
    if (const auto done = writes_.front()(registry_); !done) {
      problem_ = done.error().text;
      return again_.start(loop_, loop_.now() + try_again);
    }
    writes_.pop_front();
  }
}

} // namespace fanin::operation
