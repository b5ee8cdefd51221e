// For tests: a source that does at each read what a test says.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <utility>
#include <vector>

#include "fanin/source/source.hpp"

namespace fanin::builder::testing {

struct Script {
  source::ReadResult result; // of the next reads
  EventNumber writes = 0; // fragments at the next read, with the numbers that follow
  std::deque<EventNumber> numbers{}; // written before these, as far as there is room
  std::uint32_t size = 100; // bytes of a fragment
  int descriptor = -1;
  bool on_demand = false;
  bool starts = true;
  bool ready = true;
  std::function<void()> wake{}; // of the reader
};

class ScriptedSource final : public source::Source {
public:
  // `script` must outlive it, and may change at any time.
  explicit ScriptedSource(Script& script) : script_(script) {}

  void set_wake(std::function<void()> wake) override { script_.wake = std::move(wake); }
  bool ready(Time) override { return script_.ready; }
  Result<> start(EventNumber first, Time) override {
    next_ = first;
    if (script_.starts) return {};
    return fail(ErrorKind::not_found, "no device");
  }
  source::ReadResult read(source::FragmentQueue& queue, Time) override {
    const std::vector<std::byte> payload(script_.size);
    while (!script_.numbers.empty() &&
           queue.write(script_.numbers.front(), payload) != source::WriteOutcome::full) {
      script_.numbers.pop_front();
    }
    for (; script_.writes > 0; --script_.writes) {
      if (queue.write(next_, payload) == source::WriteOutcome::full) break;
      ++next_;
    }
    return script_.result;
  }
  [[nodiscard]] bool on_demand() const override { return script_.on_demand; }
  [[nodiscard]] int descriptor() const override { return script_.descriptor; }

private:
  Script& script_;
  EventNumber next_ = 0;
};

} // namespace fanin::builder::testing
