// For tests: a sink that does what a test says.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "fanin/storage/event_sink.hpp"

namespace fanin::builder::testing {

// What a sink was told, and what it is to say.
struct Disk {
  std::vector<std::uint64_t> taken; // tickets
  std::size_t room = 0; // batches that it takes
  int runs_begun = 0;
  bool run_ended = false;
  bool finishing = false;
  bool finished = false;
  int polls = 0;
  bool gone = false;
  std::vector<std::string> files;
  std::string waits_for;
  std::vector<std::uint64_t> to_commit; // at the next poll
  std::vector<std::uint64_t> to_set_aside;
  std::optional<Error> failure;
  bool fatal = false;
};

class ScriptedSink final : public storage::EventSink {
public:
  explicit ScriptedSink(Disk& disk) : disk_(disk) {}
  ~ScriptedSink() override { disk_.gone = true; }
  storage::SubmitOutcome submit(storage::BuiltBatch& batch) override {
    if (disk_.room == 0) return storage::SubmitOutcome::busy;
    --disk_.room;
    disk_.taken.push_back(batch.ticket);
    return storage::SubmitOutcome::accepted;
  }
  void run_began(std::int64_t /*unix_ns*/) override { ++disk_.runs_begun; }
  void run_ended() override { disk_.run_ended = true; }
  void finish() override { disk_.finishing = true; }
  bool finished() const override { return disk_.finished; }
  std::vector<std::string> files() const override { return disk_.files; }
  std::size_t file_count() const override { return disk_.files.size(); }
  std::uint64_t bytes_written() const override { return 0; }
  std::string waits_for() const override { return disk_.waits_for; }
  bool poll() override {
    ++disk_.polls;
    for (const std::uint64_t ticket : std::exchange(disk_.to_set_aside, {})) set_aside_(ticket);
    for (const std::uint64_t ticket : std::exchange(disk_.to_commit, {}))
      commit_({.ticket = ticket});
    if (disk_.failure) failure_(*std::exchange(disk_.failure, {}), disk_.fatal);
    return false;
  }

private:
  Disk& disk_;
};

} // namespace fanin::builder::testing
