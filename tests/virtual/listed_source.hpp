// For tests: a source that gives the event numbers of a list, whatever they are.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstring>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "fanin/source/source.hpp"

namespace fanin::testing {

// One number a step, as a front end that sends events when they happen. The data are the place in
// the list.
class Listed final : public source::Source {
public:
  static constexpr EventNumber pause = ~EventNumber{0}; // nothing for a step
  // With a number: of fragment_max bytes, or one more.
  static constexpr EventNumber largest = EventNumber{1} << 62;
  static constexpr EventNumber too_large = EventNumber{1} << 63;

  explicit Listed(std::vector<EventNumber> numbers, Duration step = std::chrono::microseconds{100})
      : numbers_(std::move(numbers)), step_(step) {}

  Result<> start(EventNumber, Time now) override {
    begin_ = now;
    return {};
  }
  source::ReadResult read(source::FragmentQueue& queue, Time now) override {
    std::vector<std::byte> bytes(queue.options().fragment_max + 1);
    for (; at_ < numbers_.size(); ++at_) {
      const Time due = begin_ + static_cast<Duration::rep>(at_) * step_;
      if (due > now) return {source::ReadState::waiting, due};
      if (numbers_[at_] == pause) continue;
      const EventNumber number = numbers_[at_] & ~(largest | too_large);
      const std::size_t size = (numbers_[at_] & too_large) != 0 ? bytes.size()
                               : (numbers_[at_] & largest) != 0 ? bytes.size() - 1
                                                                : 8;
      std::memcpy(bytes.data(), &at_, sizeof at_);
      if (queue.write(number, std::span{bytes}.first(size)) == source::WriteOutcome::full)
        return {};
    }
    return {behind_};
  }
  std::unique_ptr<Listed> and_ends() && {
    behind_ = source::ReadState::finished;
    return std::make_unique<Listed>(std::move(*this));
  }
  std::unique_ptr<Listed> and_pauses() && {
    behind_ = source::ReadState::paused;
    return std::make_unique<Listed>(std::move(*this));
  }

private:
  std::vector<EventNumber> numbers_;
  Duration step_;
  Time begin_{};
  std::size_t at_ = 0;
  source::ReadState behind_ = source::ReadState::waiting; // behind the last number
};

// `before` numbers from 0 on, and `after` more beyond a gap of `jump`.
inline std::vector<EventNumber> with_jump(EventNumber before, EventNumber jump, EventNumber after) {
  std::vector<EventNumber> numbers;
  for (EventNumber i = 0; i < before; ++i) numbers.push_back(i);
  for (EventNumber i = 0; i < after; ++i) numbers.push_back(before + jump + i);
  return numbers;
}

} // namespace fanin::testing
