// Observes a node from inside its process, to measure it. All calls come on the loop's thread, and
// must not block.
#pragma once

#include <cstdint>

#include "fanin/builder/ledger.hpp"

namespace fanin::executive {

// What one batch held that a builder unit has handed to storage.
struct StoredBatch {
  std::uint64_t events = 0;
  std::uint64_t fragments = 0;
  std::uint64_t bytes = 0; // of payload
};

class Observer {
public:
  virtual ~Observer() = default;
  virtual void on_begin() {} // event manager: all nodes are connected, the run has begun
  virtual void on_batch(const StoredBatch&) {}
  virtual void on_end(const builder::RunSummary&) {} // event manager
};

} // namespace fanin::executive
