#include "fanin/storage/discard_sink.hpp"

#include "fanin/base/assert.hpp"

namespace fanin::storage {

SubmitOutcome DiscardSink::submit(BuiltBatch& batch) {
  FANIN_ASSERT(!finishing_);
  for (const auto& piece : batch.pieces) bytes_ += piece.payload.size;
  batch.clear(); // the caller keeps the vectors and their capacity
  committed_.push_back(batch.ticket);
  return SubmitOutcome::accepted;
}

bool DiscardSink::poll() {
  if (committed_.empty()) return false;
  reporting_.clear();
  reporting_.swap(committed_); // a callback may submit again
  for (const auto ticket : reporting_) {
    if (commit_) commit_({.ticket = ticket});
  }
  return true;
}

} // namespace fanin::storage
