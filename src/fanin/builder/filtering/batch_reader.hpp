// Puts the fragments of a batch together event by event, from the data messages in which they came.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "fanin/builder/filtering/filter.hpp"
#include "fanin/memory/page_pool.hpp"
#include "fanin/wire/data_block.hpp"

namespace fanin::builder {

// A data message; `view` points into the others, which may be memory of another process.
struct ReceivedBlock {
  wire::DataBlockView view;
  memory::View message;
  memory::View rest;
};

class BatchReader {
public:
  // Messages of one batch, in any order of sources.
  void begin(std::vector<ReceivedBlock> blocks);
  // What came of an event, ascending by source; valid until the next call. Events must be asked for
  // in ascending order. Nothing is copied, except fragments that came in several messages.
  [[nodiscard]] std::span<const FilterFragment> fragments_of(EventNumber event);
  // Releases the messages.
  void end();

private:
  struct Cursor { // over the messages of one source
    std::size_t block = 0;
    std::size_t end = 0;
    std::uint32_t entry = 0; // of that message, the next one
    std::uint64_t offset = 0; // in its payload
    std::vector<std::byte> joined;
  };
  void add(Cursor& cursor, EventNumber event);
  void add_joined(Cursor& cursor, EventNumber event);
  void add_fragment(SourceId source, const wire::FragmentEntry& entry,
                    std::span<const std::byte> payload);

  std::vector<ReceivedBlock> blocks_;
  std::vector<Cursor> cursors_; // ascending by source
  std::vector<FilterFragment> fragments_;
};

} // namespace fanin::builder
