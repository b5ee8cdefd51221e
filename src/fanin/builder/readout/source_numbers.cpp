#include "fanin/builder/readout/source_numbers.hpp"
#include "fanin/source/event_numbers.hpp"

#include <algorithm>
#include <utility>
#include <vector>

namespace fanin::builder {

namespace {
// Beyond the limit there is no event.
void confirm(source::FragmentQueue& queue) {
  if (queue.numbers().held() < queue.limit()) (void)queue.numbers().confirm_held();
}
} // namespace

std::optional<EventNumber> lowest_number(SourceQueues queues) {
  std::optional<EventNumber> lowest;
  for (const source::FragmentQueue* const queue : queues) {
    if (!queue->numbered()) continue;
    lowest = std::min(lowest.value_or(queue->first_event()), queue->first_event());
  }
  return lowest;
}

std::optional<EventNumber> lowest_held(SourceQueues queues) {
  std::optional<EventNumber> lowest;
  for (const source::FragmentQueue* const queue : queues) {
    if (const auto held = queue->numbers().held()) lowest = std::min(lowest.value_or(*held), *held);
  }
  return lowest;
}

void confirm_held(SourceQueues queues, EventNumber number) {
  for (source::FragmentQueue* const queue : queues) {
    if (queue->numbers().held() == number) confirm(*queue);
  }
}

void confirm_equal(SourceQueues queues) {
  if (queues.size() < 2) return;
  std::vector<std::pair<EventNumber, source::FragmentQueue*>> held;
  for (source::FragmentQueue* const queue : queues) {
    if (const auto number = queue->numbers().held()) held.emplace_back(*number, queue);
  }
  std::ranges::sort(held);
  for (std::size_t i = 0; i < held.size(); ++i) {
    const bool equal = (i > 0 && held[i - 1].first == held[i].first) ||
                       (i + 1 < held.size() && held[i + 1].first == held[i].first);
    if (equal) confirm(*held[i].second);
  }
}

void confirm_near(SourceQueues queues, std::uint64_t window) {
  const auto near = [window](EventNumber a, EventNumber b) {
    return std::max(a, b) - std::min(a, b) < window;
  };
  for (source::FragmentQueue* const queue : queues) {
    if (!queue->numbers().unclear() || !queue->numbered()) continue;
    const EventNumber number = queue->numbers().jump();
    const bool confirmed = std::ranges::any_of(queues, [&](const source::FragmentQueue* other) {
      return other != queue &&
             ((other->numbers().held() && near(*other->numbers().held(), number)) ||
              (other->numbered() && near(other->next_event(), number)));
    });
    if (confirmed) confirm(*queue);
  }
}

std::optional<SourcesApart> find_apart(SourceQueues queues, std::uint64_t window) {
  std::vector<std::size_t> sorted;
  for (std::size_t i = 0; i < queues.size(); ++i) {
    if (queues[i]->numbered()) sorted.push_back(i);
  }
  const auto first = [&](std::size_t i) { return queues[i]->first_event(); };
  std::ranges::sort(sorted, {}, first);
  EventNumber end = sorted.empty() ? 0 : queues[sorted.front()]->numbers().right_end();
  for (const std::size_t i : sorted) {
    if (first(i) > end && first(i) - end > window) return SourcesApart{sorted.front(), i};
    end = std::max(end, queues[i]->numbers().right_end());
  }
  return {};
}

} // namespace fanin::builder
