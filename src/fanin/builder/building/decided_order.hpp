// Batches are decided in any order. Where storage needs them in the order of their events, a batch
// waits until all lower ones that were assigned are decided.
#pragma once

#include <map>

#include "fanin/base/assert.hpp"
#include "fanin/builder/building/assembler.hpp"

namespace fanin::builder {

class DecidedOrder {
public:
  // A batch that begins there; also one that was handed back and is assigned again, which has kept
  // its place.
  void assigned(EventNumber first) { batches_.try_emplace(first, nullptr); }
  // It stays until next() gives it.
  void decided(Assembly& assembly) {
    const auto found = batches_.find(assembly.range.first);
    FANIN_ASSERT(found != batches_.end() && found->second == nullptr); // assigned, not decided
    found->second = &assembly;
  }
  // The next one in order; null: it is not decided.
  [[nodiscard]] Assembly* next() {
    if (batches_.empty() || batches_.begin()->second == nullptr) return nullptr;
    Assembly* const assembly = batches_.begin()->second;
    batches_.erase(batches_.begin());
    return assembly;
  }
  void clear() { batches_.clear(); }

private:
  std::map<EventNumber, Assembly*> batches_; // assigned; null: not decided
};

} // namespace fanin::builder
