#include "fanin/storage/file_sink.hpp"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <filesystem>
#include <system_error>
#include <utility>

#include <pthread.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <fmt/core.h>

#include "fanin/base/assert.hpp"
#include "fanin/base/try.hpp"

namespace fanin::storage {
namespace {

std::uint64_t size_in_file(const BuiltBatch& batch) {
  auto size = batch.range.count() * sizeof(EventRow);
  for (const auto& piece : batch.pieces) {
    size += piece.payload.size + piece.range.count() * sizeof(FragmentRow);
  }
  for (const auto& missing : batch.missing) size += missing.events.count() * sizeof(MissingRow);
  return size;
}

// Signals are for the loop's thread.
class SignalsBlocked {
public:
  SignalsBlocked() {
    sigset_t all;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~SignalsBlocked() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

private:
  sigset_t before_{};
};

} // namespace

FileSink::FileSink(FileSinkOptions options)
    : options_(std::move(options)),
      slots_(options_.depth),
      queued_(options_.depth),
      committed_(options_.depth) {
  for (auto i = static_cast<std::uint32_t>(slots_.size()); i > 0; --i) free_.push_back(i - 1);
  group_.reserve(slots_.size());
  group_batches_.reserve(slots_.size());
}

Result<std::unique_ptr<FileSink>> FileSink::make(FileSinkOptions options) {
  if (options.depth == 0) return fail(ErrorKind::usage, "storage depth must be at least 1 batch");
  std::unique_ptr<FileSink> sink(new FileSink(std::move(options)));
  sink->event_descriptor_ = Descriptor(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!sink->event_descriptor_) return fail_errno(ErrorKind::exhausted, "eventfd", errno);
  FANIN_TRY(sink->open_part());
  return sink;
}

Result<> FileSink::start() {
  FANIN_ASSERT(!thread_.joinable());
  const SignalsBlocked blocked;
  try {
    thread_ = std::thread([this] { run(); });
  } catch (const std::system_error& error) {
    return fail(ErrorKind::exhausted, fmt::format("storage thread: {}", error.what()));
  }
  ::pthread_setname_np(thread_.native_handle(), "fanin-storage");
  if (options_.cpu < 0) return {};
  cpu_set_t cpus;
  CPU_ZERO(&cpus);
  if (options_.cpu < CPU_SETSIZE) CPU_SET(static_cast<std::size_t>(options_.cpu), &cpus);
  const int outcome = ::pthread_setaffinity_np(thread_.native_handle(), sizeof cpus, &cpus);
  if (outcome == 0) return {};
  return fail_errno(ErrorKind::usage, fmt::format("storage thread on CPU {}", options_.cpu),
                    outcome);
}

FileSink::~FileSink() { abandon(); }

// --- the loop's side ---

SubmitOutcome FileSink::submit(BuiltBatch& batch) {
  FANIN_ASSERT(!finishing_);
  if (free_.empty()) return SubmitOutcome::busy;
  const auto slot = free_.back();
  free_.pop_back();
  slots_[slot].size = size_in_file(batch);
  std::swap(slots_[slot].batch, batch);
  const bool pushed = queued_.push(slot);
  FANIN_ASSERT(pushed); // as many places as slots
  if (sleeping_) wake_writer();
  return SubmitOutcome::accepted;
}

void FileSink::wake_writer() {
  const std::lock_guard lock(mutex_);
  wake_.notify_one();
}

void FileSink::finish() {
  finishing_ = true;
  wake_writer();
}

void FileSink::abandon() {
  abandoned_ = true;
  if (thread_.joinable()) {
    wake_writer();
    thread_.join();
  }
  close_part(); // where the thread never started
}

bool FileSink::finished() const { return ended_ && committed_.empty() && !has_reports_; }

std::vector<std::string> FileSink::files() const {
  const std::lock_guard lock(report_mutex_);
  return files_;
}

std::uint64_t FileSink::bytes_written() const { return bytes_written_; }

std::string FileSink::waits_for() const {
  const std::lock_guard lock(report_mutex_);
  return failure_text_;
}

void FileSink::release(std::uint32_t slot) {
  slots_[slot].batch.clear(); // pages go home on the thread that counts them
  FANIN_ASSERT(free_.size() < slots_.size());
  free_.push_back(slot);
}

bool FileSink::poll() {
  if (std::exchange(waiting_, false)) {
    armed_ = false;
    std::uint64_t count = 0;
    static_cast<void>(::read(event_descriptor_.get(), &count, sizeof count)); // empty is fine
  }
  bool worked = false;
  const bool reported = has_reports_.exchange(false); // what was committed before is said before
  for (std::size_t i = 0; i < slots_.size() && !committed_.empty(); ++i) {
    const auto slot = committed_.front();
    committed_.pop();
    const auto ticket = slots_[slot].batch.ticket;
    release(slot);
    worked = true;
    if (commit_) commit_({.ticket = ticket});
  }
  if (reported) {
    std::vector<Report> reports;
    {
      const std::lock_guard lock(report_mutex_);
      reports.swap(reports_);
    }
    worked = true;
    for (const auto& said : reports) {
      if (said.gone) {
        if (options_.on_gone) options_.on_gone(said.gone->file.path(), said.gone->events);
      } else if (failure_) {
        failure_(said.error, said.fatal);
      }
    }
  }
  if (ended_ && !std::exchange(end_seen_, true)) worked = true;
  return worked;
}

bool FileSink::arm() {
  armed_ = true;
  if (!committed_.empty() || has_reports_ || (ended_ && !end_seen_)) {
    armed_ = false;
    return false;
  }
  waiting_ = true;
  return true;
}

// --- the writer's thread ---

void FileSink::run() {
  while (wait_for_work()) {
    collect();
    if (!commit_group()) break;
  }
  close_part();
  for (auto& part : parts_) {
    if (!part.file.intact()) lose(part);
  }
  ended_ = true;
  wake_loop();
}

// False: there is no more.
bool FileSink::wait_for_work() {
  while (true) {
    if (abandoned_) return false;
    const bool finishing = finishing_; // what was submitted before is seen below
    if (!queued_.empty()) return true;
    if (finishing) return false;
    std::unique_lock lock(mutex_);
    sleeping_ = true;
    wake_.wait(lock, [this] { return !queued_.empty() || finishing_ || abandoned_; });
    sleeping_ = false;
  }
}

// Takes what is queued, as far as it fits into one commit and one file.
void FileSink::collect() {
  // The next group must not go into a file that nobody finds.
  if (writer_ && !writer_->intact()) close_part();
  std::uint64_t size = 0;
  group_.clear();
  group_batches_.clear();
  while (!queued_.empty()) {
    const auto slot = queued_.front();
    const auto more = slots_[slot].size;
    const auto present = writer_ ? writer_->size() : 0;
    if (present + size + more > part_max()) {
      if (!group_.empty()) break;
      if (present > 0) close_part();
    }
    if (!group_.empty() && size + more > options_.group_bytes) break;
    queued_.pop();
    size += more;
    group_.push_back(slot);
    group_batches_.push_back(&slots_[slot].batch);
  }
}

// False: no more will be written.
bool FileSink::commit_group() {
  while (true) {
    const auto done = write_group();
    if (done) break;
    if (!wait_for_retry(done.error())) return false;
  }
  set_failure({});
  commits_.fetch_add(1, std::memory_order_relaxed);
  for (const auto slot : group_) {
    const bool pushed = committed_.push(slot);
    FANIN_ASSERT(pushed);
  }
  wake_loop();
  return true;
}

Result<> FileSink::write_group() {
  while (true) {
    const std::int64_t began = began_unix_ns_;
    if (began != 0) options_.file.started_unix_ns = began;
    if (!writer_) FANIN_TRY(open_part());
    FANIN_TRY(writer_->set_started(options_.file.started_unix_ns));
    const auto before = writer_->size();
    const auto done = writer_->append(group_batches_);
    const bool intact = writer_->intact();
    if (intact) FANIN_TRY(done);
    list_part();
    if (intact) {
      bytes_written_ += writer_->size() - before;
      parts_.back().events = writer_->events();
      return {};
    }
    close_part(); // the group goes into the next one
  }
}

void FileSink::list_part() {
  if (std::exchange(listed_, true)) return;
  parts_.push_back({});
  const std::lock_guard lock(report_mutex_);
  files_.push_back(writer_->path());
  file_count_ = files_.size();
}

// Empty: it is over. Returns whether there was one.
bool FileSink::set_failure(std::string text) {
  const std::lock_guard lock(report_mutex_);
  return !std::exchange(failure_text_, std::move(text)).empty();
}

// After a failure: true once it is worth another try.
bool FileSink::wait_for_retry(const Error& error) {
  if (writer_ && writer_->broken()) close_part();
  if (options_.on_full == OnFull::stop) {
    report({.error = error, .fatal = true});
    return false;
  }
  const bool full = error.kind == ErrorKind::exhausted;
  if (!set_failure(
          fmt::format("the disk, which {} ({})", full ? "is full" : "fails", error.text))) {
    const char* remedy = full ? "; nothing is lost; the sources are held back: free space there"
                              : "; nothing is lost; trying again in another file";
    report({.error = {error.kind, error.text + remedy}});
  }
  std::unique_lock lock(mutex_);
  wake_.wait_for(lock, options_.retry_interval, [this] { return abandoned_.load(); });
  return !abandoned_;
}

std::uint64_t FileSink::part_max() const {
  const bool first = next_part_ == (writer_ ? 2U : 1U);
  return first ? std::min(first_part_max, options_.file.max_file) : options_.file.max_file;
}

Result<> FileSink::open_part() {
  auto writer = RunFileWriter::create(options_.file, next_part_);
  if (!writer && writer.error().kind == ErrorKind::not_found && next_part_ > 1) {
    std::error_code ignored; // the folder was removed since; the next error says it, if it stays so
    std::filesystem::create_directories(options_.file.directory, ignored);
    writer = RunFileWriter::create(options_.file, next_part_);
  }
  if (!writer) return std::unexpected(std::move(writer.error()));
  writer_ = std::move(*writer);
  ++next_part_;
  listed_ = false;
  return {};
}

void FileSink::close_part() {
  if (!writer_) return;
  // Without a commit there is no such file: it is unlinked.
  const auto closed = listed_ ? writer_->close() : Result<>{};
  const bool intact = writer_->intact();
  if (!closed && intact) report({.error = closed.error()}); // what was committed stays committed
  if (listed_) {
    parts_.back().file = writer_->file();
    if (!intact) lose(parts_.back());
  }
  writer_.reset();
}

void FileSink::lose(Part& part) {
  if (std::exchange(part.gone, true)) return;
  report({.gone = part});
}

void FileSink::report(Report report) {
  {
    const std::lock_guard lock(report_mutex_);
    reports_.push_back(std::move(report));
  }
  has_reports_ = true;
  wake_loop();
}

void FileSink::wake_loop() {
  if (!armed_.exchange(false)) return;
  const std::uint64_t one = 1;
  static_cast<void>(
      ::write(event_descriptor_.get(), &one, sizeof one)); // cannot fail below 2^64 - 1
}

} // namespace fanin::storage
