/// \file
/// Writes run files on a separate thread. Batches go there and back through bounded rings. The
/// thread groups queued batches into one write and one commit: at a low rate each batch is
/// committed at once, at a high rate many together.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "fanin/base/clock.hpp"
#include "fanin/base/descriptor.hpp"
#include "fanin/storage/detail/spsc_ring.hpp"
#include "fanin/storage/event_sink.hpp"
#include "fanin/storage/run_file_writer.hpp"

namespace fanin::storage {

/// What happens if the disk is full or cannot be written.
enum class OnFull : std::uint8_t {
  wait, ///< report once, try again from time to time, be busy meanwhile
  stop ///< report, close the file in good order, take nothing more
};

struct FileSinkOptions {
  RunFileOptions file;
  OnFull on_full = OnFull::wait;
  std::size_t depth = 64; ///< most batches that are taken and not committed; beyond that: busy
  std::uint64_t group_bytes = 64U << 20; ///< most bytes in one commit, if it has more than one
                                         ///< batch
  Duration retry_interval = std::chrono::seconds{1};
  int cpu = -1; ///< the CPU of the thread; -1: any
  /// A file with so many committed events was removed, renamed, replaced or cut by somebody else:
  /// they are not where they should be. Called on the loop's thread from poll(), once for each
  /// file.
  std::function<void(const std::string& path, std::uint64_t events)> on_gone{};
};

/// Thread: all members belong to the loop's thread. Pages are given back there, in poll(). Memory:
/// rows of one group, about 32 bytes a fragment.
class FileSink final : public EventSink {
public:
  /// Makes the first file, so that a folder that cannot be written is an error at the start.
  /// Errors: as of RunFileWriter::create.
  [[nodiscard]] static Result<std::unique_ptr<FileSink>> make(FileSinkOptions options);
  /// Starts the thread, which writes what was submitted before. Errors: exhausted, usage (cpu).
  [[nodiscard]] Result<> start();
  /// Ends the thread, and waits for its current write. Queued batches are dropped, and the file is
  /// closed in good order. To keep them, call finish() before and wait for finished().
  ~FileSink() override;

  void run_began(std::int64_t unix_ns) override { began_unix_ns_ = unix_ns; }
  [[nodiscard]] SubmitOutcome
  submit(BuiltBatch& batch) override; ///< leaves an empty batch, with its capacity
  void finish() override;
  void abandon() override;
  [[nodiscard]] bool finished() const override;
  [[nodiscard]] std::vector<std::string> files() const override; ///< complete paths
  [[nodiscard]] std::size_t file_count() const override { return file_count_; }
  [[nodiscard]] std::uint64_t bytes_written() const override; ///< committed, payload and rows

  bool poll() override;
  bool arm() override;
  [[nodiscard]] int descriptor() const override { return event_descriptor_.get(); }
  [[nodiscard]] std::string waits_for() const override; ///< the disk, with what is wrong with it

  [[nodiscard]] std::uint64_t commits() const { return commits_; } ///< groups, any thread

private:
  struct Slot {
    BuiltBatch batch;
    std::uint64_t size = 0; // bytes in the file, about
  };
  struct Part { // with committed events
    NamedFile file; // once it is closed
    std::uint64_t events = 0;
    bool gone = false;
  };
  struct Report { // of an error, or of a file that is gone
    Error error;
    bool fatal = false;
    std::optional<Part> gone{};
  };

  explicit FileSink(FileSinkOptions options);

  // On the writer's thread.
  void run();
  [[nodiscard]] bool wait_for_work();
  void collect();
  [[nodiscard]] bool commit_group();
  [[nodiscard]] Result<> write_group();
  void list_part();
  bool set_failure(std::string text);
  [[nodiscard]] bool wait_for_retry(const Error& error);
  [[nodiscard]] std::uint64_t part_max() const; // of the open part, or of the next one
  [[nodiscard]] Result<> open_part();
  void close_part();
  void lose(Part& part);
  void report(Report report);
  void wake_loop();

  void release(std::uint32_t slot);
  void wake_writer();

  FileSinkOptions options_;
  std::vector<Slot> slots_;
  std::vector<std::uint32_t> free_; // loop's thread
  detail::SpscRing<std::uint32_t> queued_; // slots, to the writer
  detail::SpscRing<std::uint32_t> committed_; // slots, back

  // Writer's thread once it runs.
  std::unique_ptr<RunFileWriter> writer_;
  std::uint32_t next_part_ = 1;
  std::vector<std::uint32_t> group_;
  std::vector<const BuiltBatch*> group_batches_;
  std::vector<Part> parts_; // the last one is the writer's, if it is listed
  bool listed_ = false; // the writer's file is one of files_

  std::mutex mutex_; // guards going to sleep only
  std::condition_variable wake_;
  mutable std::mutex report_mutex_; // of those that follow
  std::vector<Report> reports_;
  std::vector<std::string> files_;
  std::string failure_text_; // empty: what was written last was written
  std::atomic<std::size_t> file_count_{0};

  std::atomic<std::int64_t> began_unix_ns_{0}; // 0: not yet
  std::atomic<bool> sleeping_{false};
  std::atomic<bool> finishing_{false};
  std::atomic<bool> abandoned_{false};
  std::atomic<bool> has_reports_{false};
  std::atomic<bool> ended_{false}; // the writer's thread has closed its file
  std::atomic<bool> armed_{false};
  std::atomic<std::uint64_t> bytes_written_{0};
  std::atomic<std::uint64_t> commits_{0};

  Descriptor event_descriptor_;
  bool waiting_ = false; // the loop may have slept on the descriptor
  bool end_seen_ = false; // poll() has told the loop that the writer ended
  std::thread thread_;
};

} // namespace fanin::storage
