#include "fanin/executive/watched_sink.hpp"

#include <climits>
#include <utility>

#include <fmt/format.h>

#include "fanin/base/counted.hpp"
#include "fanin/base/thrown.hpp"

namespace fanin::executive {

WatchedSink::WatchedSink(std::unique_ptr<storage::EventSink> inner, std::string name,
                         const Clock& clock, LogFunction log)
    : inner_(std::move(inner)),
      name_(std::move(name)),
      log_(std::move(log)),
      calls_(clock, log_, name_, "builder unit") {
  inner_->on_commit([this](const storage::Committed& done) {
    if (on_own_thread()) committed(done);
  });
  inner_->on_failure([this](const Error& error, bool fatal) {
    if (!on_own_thread()) return;
    failed_ = failed_ || fatal;
    if (!fatal && error.text == last_failure_) return;
    last_failure_ = error.text;
    failures_.push_back({{error.kind, fmt::format("{}: {}", name_, error.text)}, fatal});
  });
  inner_->on_set_aside([](std::uint64_t) {}); // there is no memory for that
}

bool WatchedSink::on_own_thread() {
  const bool own = std::this_thread::get_id() == thread_;
  if (!own) other_thread_ = true;
  return own;
}

void WatchedSink::committed(const storage::Committed& committed) {
  if (open_.erase(committed.ticket) != 0) {
    last_failure_.clear();
    return committed_.push_back(committed.ticket);
  }
  if (failed_) return;
  fail_for_good(ErrorKind::internal,
                fmt::format("it committed batch {}, which it does not have", committed.ticket));
}

void WatchedSink::fail_for_good(ErrorKind kind, std::string_view why) {
  failed_ = true;
  failures_.push_back({{kind, fmt::format("{}: {}", name_, why)}, true});
}

template <class Call>
bool WatchedSink::call_inner(const char* function, const Call& call) {
  try {
    const CallWatch::Running running(calls_, function);
    call();
    return true;
  } catch (...) {
    if (!failed_) fail_for_good(ErrorKind::internal, thrown().text);
    return false;
  }
}

template <class Call, class Value>
Value WatchedSink::call_or(const Call& call, Value otherwise) const {
  try {
    return call();
  } catch (...) {
    if (!std::exchange(throw_logged_, true) && log_)
      log_(LogLevel::error, fmt::format("{}: {}", name_, thrown().text));
    return otherwise;
  }
}

storage::SubmitOutcome WatchedSink::submit(storage::BuiltBatch& batch) {
  using storage::SubmitOutcome;
  if (failed_) return SubmitOutcome::busy;
  const std::uint64_t ticket = batch.ticket;
  const std::size_t pieces = batch.pieces.size();
  auto outcome = SubmitOutcome::busy;
  open_.insert(ticket);
  call_inner("submit", [&] { outcome = inner_->submit(batch); });
  if (outcome == SubmitOutcome::accepted) return outcome;
  const bool kept = open_.erase(ticket) != 0 && batch.pieces.size() == pieces;
  std::erase(committed_, ticket);
  if (!kept && !failed_)
    fail_for_good(ErrorKind::internal, fmt::format("it took batch {} and said busy", ticket));
  return outcome;
}

bool WatchedSink::poll() {
  bool worked = false;
  if (!failed_) call_inner("poll", [&] { worked = inner_->poll(); });
  if (!failed_) take_files();
  if (other_thread_.exchange(false) && !failed_)
    fail_for_good(ErrorKind::internal, "it called back from another thread than that of the loop");
  if (finishing_ && !failed_) check_end();
  worked = worked || !committed_.empty() || !failures_.empty();
  reporting_.clear();
  reporting_.swap(committed_); // a callback may submit again
  for (const std::uint64_t ticket : reporting_) {
    if (commit_) commit_({.ticket = ticket});
  }
  for (const Failure& failure : std::exchange(failures_, {})) {
    if (failure_) failure_(failure.error, failure.fatal);
  }
  return worked;
}

// Named once each, in order.
void WatchedSink::take_files() {
  call_inner("files", [this] {
    if (inner_->file_count() <= files_.size()) return;
    const auto files = inner_->files();
    for (std::size_t i = files_.size(); i < files.size(); ++i) {
      if (files[i].contains('\n'))
        return fail_for_good(ErrorKind::internal, "a file's name has a line break in it");
      if (files[i].size() > PATH_MAX)
        return fail_for_good(ErrorKind::internal,
                             fmt::format("a file's name has more than {} bytes", PATH_MAX));
      files_.push_back(files[i]);
    }
  });
}

void WatchedSink::check_end() {
  bool ended = false;
  call_inner("finished", [&] { ended = inner_->finished(); });
  if (failed_ || !ended || open_.empty()) return;
  fail_for_good(ErrorKind::internal, fmt::format("it has finished, and {} not committed",
                                                 counted(open_.size(), "batch is", "batches are")));
}

bool WatchedSink::arm() {
  if (!committed_.empty() || !failures_.empty()) return false;
  if (failed_) return true;
  bool idle = false;
  call_inner("arm", [&] { idle = inner_->arm(); });
  return idle && !failed_;
}

// After a failure nobody reads it, and it would wake the loop for ever.
int WatchedSink::descriptor() const {
  if (failed_) return -1;
  return call_or([this] { return inner_->descriptor(); }, -1);
}

void WatchedSink::run_began(std::int64_t unix_ns) {
  if (!failed_) call_inner("run_began", [this, unix_ns] { inner_->run_began(unix_ns); });
}

void WatchedSink::run_ended() {
  if (!failed_) call_inner("run_ended", [this] { inner_->run_ended(); });
}

void WatchedSink::finish() {
  finishing_ = true;
  if (!failed_) call_inner("finish", [this] { inner_->finish(); });
}

bool WatchedSink::finished() const {
  if (!committed_.empty() || !failures_.empty()) return false;
  if (failed_) return true;
  return finishing_ && open_.empty() && call_or([this] { return inner_->finished(); }, true);
}

void WatchedSink::abandon() {
  (void)call_or([this] { return inner_->abandon(), true; }, true);
}

std::uint64_t WatchedSink::bytes_written() const {
  return call_or([this] { return inner_->bytes_written(); }, std::uint64_t{0});
}

std::string WatchedSink::waits_for() const {
  if (failed_) return {};
  return call_or([this] { return inner_->waits_for(); }, std::string{});
}

} // namespace fanin::executive
