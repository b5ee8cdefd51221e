// A sink that keeps committed batches in memory: for tests, also in virtual time. It can be slow,
// stall, and fail.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "fanin/storage/detail/row_builder.hpp"
#include "fanin/storage/event_sink.hpp"
#include "fanin/storage/layout.hpp"
#include "fanin/wire/slice.hpp"

namespace fanin::storage {

struct StoredFragment {
  SourceId source = 0;
  std::uint32_t size = 0;
  std::uint32_t crc32c = 0;
  FragmentRowFlags flags = 0;
  std::vector<std::byte> bytes; // empty unless MemorySinkOptions::keep_bytes
};

struct StoredEvent {
  EventRow row;
  std::vector<StoredFragment> fragments; // ascending by source
  std::vector<MissingRow> missing; // ascending by source
};

// The disk of memory sinks. It outlives them, so that what a builder unit committed before it died
// is still there. Sinks of all nodes of one thread may share it.
struct MemoryStore {
  std::vector<StoredEvent> events; // in order of commit; an event may be in it more than once
  std::vector<GapRow> gaps;
  std::uint64_t commits = 0; // batches
};

struct MemorySinkOptions {
  std::vector<SourceInfo> sources; // in any order; they decide which events are complete
  std::vector<MergedSource> merged{}; // as RunFileOptions, and so is `slice`
  wire::Slice slice{};
  RunNumber run = 0; // of super-fragments; 0: any
  NodeId node = 0;
  Incarnation incarnation = 1;
  Duration commit_delay{0}; // from submit() to commit, on the loop's clock
  std::size_t depth = 16; // batches taken and not yet committed; beyond: busy
  bool keep_bytes = true;
};

// Thread: the loop's. Both references must outlive the sink.
class MemorySink : public EventSink {
public:
  MemorySink(net::Loop& loop, MemoryStore& store, MemorySinkOptions options);

  [[nodiscard]] SubmitOutcome submit(BuiltBatch& batch) override;
  void finish() override { finishing_ = true; }
  [[nodiscard]] bool finished() const override { return finishing_ && pending_.empty(); }
  [[nodiscard]] std::vector<std::string> files() const override { return {}; }
  [[nodiscard]] std::size_t file_count() const override { return 0; }
  [[nodiscard]] std::uint64_t bytes_written() const override { return bytes_; }

  bool poll() override;
  bool arm() override { return failures_.empty() && !due(); }

  // Stalls the disk: nothing is committed until it is called again with false.
  void stall(bool stalled);
  // Behaves as if the disk had failed, or were full (not fatal). Reported at the next poll().
  void report_failure(Error error, bool fatal);
  void set_commit_delay(Duration delay) { options_.commit_delay = delay; }
  [[nodiscard]] std::size_t pending() const { return pending_.size(); }

private:
  struct Pending {
    Time due;
    BuiltBatch batch;
  };
  struct Failure {
    Error error;
    bool fatal = false;
  };
  [[nodiscard]] bool due() const;
  void start_timer();
  void keep(const BuiltBatch& batch);

  net::Loop& loop_;
  MemoryStore& store_;
  MemorySinkOptions options_;
  detail::RowBuilder rows_;
  net::Timer timer_;
  std::deque<Pending> pending_;
  std::vector<Failure> failures_;
  std::uint64_t bytes_ = 0;
  bool stalled_ = false;
  bool finishing_ = false;
};

} // namespace fanin::storage
