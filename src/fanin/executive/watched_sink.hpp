// Checks a plug-in's sink: an exception, or a call against the contract, becomes a failure of this
// sink alone.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "fanin/base/log.hpp"
#include "fanin/executive/call_watch.hpp"
#include "fanin/storage/event_sink.hpp"

namespace fanin::executive {

class WatchedSink final : public storage::EventSink {
public:
  // `name`: human-readable. The clock outlives it. Thread: the one that makes it.
  WatchedSink(std::unique_ptr<storage::EventSink> inner, std::string name, const Clock& clock,
              LogFunction log);

  [[nodiscard]] storage::SubmitOutcome submit(storage::BuiltBatch& batch) override;
  void run_began(std::int64_t unix_ns) override;
  void run_ended() override;
  void finish() override;
  [[nodiscard]] bool finished() const override;
  void abandon() override;
  [[nodiscard]] std::vector<std::string> files() const override { return files_; }
  [[nodiscard]] std::size_t file_count() const override { return files_.size(); }
  [[nodiscard]] std::uint64_t bytes_written() const override;
  [[nodiscard]] std::string waits_for() const override;

  bool poll() override;
  bool arm() override;
  [[nodiscard]] int descriptor() const override;

private:
  struct Failure {
    Error error;
    bool fatal = false;
  };

  [[nodiscard]] bool on_own_thread();
  void committed(const storage::Committed& committed);
  void fail_for_good(ErrorKind kind, std::string_view why);
  // Calls this function of the inner sink. False: it threw, which is treated as its failure.
  template <class Call>
  bool call_inner(const char* function, const Call& call);
  // The result of `call`, or `otherwise` if it throws; that is logged once.
  template <class Call, class Value>
  Value call_or(const Call& call, Value otherwise) const;
  void take_files();
  void check_end();

  std::unique_ptr<storage::EventSink> inner_;
  std::string name_;
  LogFunction log_;
  CallWatch calls_;
  std::thread::id thread_ = std::this_thread::get_id();
  std::atomic<bool> other_thread_{false}; // it called back from there
  std::set<std::uint64_t> open_; // tickets that it has taken and not committed
  std::vector<std::uint64_t> committed_; // said at the next poll(), as failures
  std::vector<std::uint64_t> reporting_;
  std::vector<Failure> failures_;
  std::string last_failure_; // not said again before something is committed
  std::vector<std::string> files_;
  bool finishing_ = false;
  bool failed_ = false; // for good: it gets no further batch
  mutable bool throw_logged_ = false;
};

} // namespace fanin::executive
