#include "fanin/simulation/paced_sink.hpp"

#include <algorithm>
#include <utility>

namespace fanin::simulation {
namespace {

constexpr std::size_t depth = 16; // batches

} // namespace

PacedSink::PacedSink(net::Loop& loop, double bytes_per_s)
    : loop_(loop), bytes_per_s_(bytes_per_s) {}

PacedSink::~PacedSink() = default;

storage::SubmitOutcome PacedSink::submit(storage::BuiltBatch& batch) {
  if (waiting_.size() >= depth) return storage::SubmitOutcome::busy;
  std::uint64_t size = 0;
  for (const auto& piece : batch.pieces) size += piece.payload.size;
  bytes_ += size;
  free_ = std::max(free_, loop_.now());
  if (bytes_per_s_ > 0)
    free_ += Duration{static_cast<Duration::rep>(1e9 * static_cast<double>(size) / bytes_per_s_)};
  waiting_.push_back({.batch = std::move(batch), .due = free_});
  timer_.set(loop_, waiting_.front().due);
  return storage::SubmitOutcome::accepted;
}

bool PacedSink::poll() {
  bool worked = false;
  while (!waiting_.empty() && waiting_.front().due <= loop_.now()) {
    const std::uint64_t ticket = waiting_.front().batch.ticket;
    waiting_.pop_front();
    worked = true;
    if (commit_) commit_({.ticket = ticket});
  }
  if (!waiting_.empty()) timer_.set(loop_, waiting_.front().due);
  return worked;
}

} // namespace fanin::simulation
