// Which numbers that the sources of a readout unit hold are right, and where they begin too far
// from each other: all that follows from their queues alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "fanin/source/fragment_queue.hpp"

namespace fanin::builder {

using SourceQueues = std::span<source::FragmentQueue* const>;

// The lowest number of an event that was answered and is not released.
[[nodiscard]] std::optional<EventNumber> lowest_number(SourceQueues queues);
// The lowest number that one of them holds, since it is not confirmed.
[[nodiscard]] std::optional<EventNumber> lowest_held(SourceQueues queues);

// Somebody else holds `number`, which confirms it.
void confirm_held(SourceQueues queues, EventNumber number);
// Two sources that hold the same number confirm it.
void confirm_equal(SourceQueues queues);
// A jump is right where another source has come within `window`, or holds a number there: all of
// them have the same gap. So is what comes before such a jump.
void confirm_near(SourceQueues queues, std::uint64_t window);

// One of two sources begins with wrong numbers, or with those of another run.
struct SourcesApart {
  std::size_t first = 0; // indices: the source with the lowest number
  std::size_t far = 0;   // and one that begins more than a window above all lower ones
};
// One that has gone on to where the other begins, and waits for room there, is not apart.
[[nodiscard]] std::optional<SourcesApart> find_apart(SourceQueues queues, std::uint64_t window);

} // namespace fanin::builder
