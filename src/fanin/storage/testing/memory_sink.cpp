#include "fanin/storage/testing/memory_sink.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

namespace fanin::storage {
namespace {

MemorySinkOptions sorted(MemorySinkOptions options) {
  std::ranges::sort(options.sources, {}, &SourceInfo::id);
  std::ranges::sort(options.merged, {}, &MergedSource::source);
  return options;
}

// The payload of a group lies scattered in pages: gathered once, then cut by the rows' offsets.
std::vector<std::byte> gather(const detail::RowBuilder& rows) {
  std::vector<std::byte> bytes(rows.payload_bytes());
  std::size_t at = 0;
  for (const auto& extent : rows.extents()) {
    std::memcpy(bytes.data() + at, extent.iov_base, extent.iov_len);
    at += extent.iov_len;
  }
  return bytes;
}

} // namespace

MemorySink::MemorySink(net::Loop& loop, MemoryStore& store, MemorySinkOptions options)
    : loop_(loop),
      store_(store),
      options_(sorted(std::move(options))),
      rows_({.sources = options_.sources,
             .merged = options_.merged,
             .slice = options_.slice,
             .run = options_.run,
             .node = options_.node,
             .incarnation = options_.incarnation}) {}

SubmitOutcome MemorySink::submit(BuiltBatch& batch) {
  FANIN_ASSERT(!finishing_);
  if (pending_.size() >= options_.depth) return SubmitOutcome::busy;
  pending_.push_back({.due = loop_.now() + options_.commit_delay, .batch = std::move(batch)});
  batch = {};
  start_timer();
  return SubmitOutcome::accepted;
}

bool MemorySink::due() const {
  return !stalled_ && !pending_.empty() && pending_.front().due <= loop_.now();
}

// The timer only makes the loop turn; the work is done in poll().
void MemorySink::start_timer() {
  timer_.set(loop_, stalled_ || pending_.empty() ? never : pending_.front().due);
}

bool MemorySink::poll() {
  bool worked = false;
  for (auto& failure : std::exchange(failures_, {})) {
    worked = true;
    if (failure_) failure_(failure.error, failure.fatal);
  }
  while (due()) {
    const auto ticket = pending_.front().batch.ticket;
    keep(pending_.front().batch);
    pending_.pop_front(); // its pages are home before the commit is told
    worked = true;
    if (commit_) commit_({.ticket = ticket});
  }
  if (worked) start_timer();
  return worked;
}

void MemorySink::stall(bool stalled) {
  stalled_ = stalled;
  if (!stalled) {
    for (auto& pending : pending_) pending.due = std::max(pending.due, loop_.now());
  }
  start_timer();
}

void MemorySink::report_failure(Error error, bool fatal) {
  failures_.push_back({.error = std::move(error), .fatal = fatal});
  timer_.start(loop_, loop_.now());
}

void MemorySink::keep(const BuiltBatch& batch) {
  rows_.start({});
  rows_.add(batch);
  const auto bytes = options_.keep_bytes ? gather(rows_) : std::vector<std::byte>{};
  for (const auto& row : rows_.events()) {
    StoredEvent event{.row = row, .fragments = {}, .missing = {}};
    for (const auto& fragment : rows_.fragments().subspan(row.first_fragment, row.fragment_count)) {
      StoredFragment stored{.source = fragment.source,
                            .size = fragment.size,
                            .crc32c = fragment.crc32c,
                            .flags = fragment.flags,
                            .bytes = {}};
      if (options_.keep_bytes) {
        const auto part = std::span(bytes).subspan(fragment.offset, fragment.size);
        stored.bytes.assign(part.begin(), part.end());
      }
      event.fragments.push_back(std::move(stored));
    }
    const auto missing = rows_.missing().subspan(row.first_missing, row.missing_count);
    event.missing.assign(missing.begin(), missing.end());
    store_.events.push_back(std::move(event));
  }
  store_.gaps.insert(store_.gaps.end(), rows_.gaps().begin(), rows_.gaps().end());
  ++store_.commits;
  bytes_ += rows_.payload_bytes();
}

} // namespace fanin::storage
