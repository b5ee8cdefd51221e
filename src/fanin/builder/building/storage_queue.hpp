// The way of decided batches into storage: they wait where it is busy. Each incarnation of a
// builder unit has a sink of its own; those of earlier ones still write what they hold.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "fanin/base/assert.hpp"
#include "fanin/base/log.hpp"
#include "fanin/builder/building/assembler.hpp"
#include "fanin/net/loop.hpp"
#include "fanin/storage/event_sink.hpp"

namespace fanin::builder {

// Thread: the loop's.
class StorageQueue {
public:
  // `loop` must outlive it.
  StorageQueue(net::Loop& loop, LogFunction log) : loop_(loop), log_(std::move(log)) {}
  ~StorageQueue();

  // A new incarnation. `on_commit` and `on_set_aside` get the first event of a batch as
  // ticket.
  void begin(std::unique_ptr<storage::EventSink> sink, storage::EventSink::OnCommit on_commit,
             storage::EventSink::OnSetAside on_set_aside);
  // It is over; what its sink holds is still written, and nobody is told.
  void end();

  // The assembly is decided; it has to stay until it is committed.
  void add(Assembly& assembly) {
    FANIN_ASSERT(assembly.state == AssemblyState::decided);
    waiting_.push_back(&assembly);
    submit();
  }
  // Once a turn: gives storage what it takes.
  void submit();
  // Storage takes nothing now.
  [[nodiscard]] bool held_up() const { return !waiting_.empty(); }
  // Sinks of earlier incarnations still write what they hold.
  [[nodiscard]] bool writes_earlier() const { return !old_sinks_.empty(); }
  // Once a turn: forgets sinks that have written everything.
  void forget_finished();

  // Of this incarnation; there is one between begin() and end().
  [[nodiscard]] storage::EventSink& sink() {
    FANIN_ASSERT(sink_ != nullptr);
    return *sink_;
  }
  // Storage has failed for good.
  [[nodiscard]] const std::optional<Error>& failure() const { return failure_; }
  // Of all incarnations whose sinks are still there.
  [[nodiscard]] std::vector<std::string> files() const;
  // Human-readable: what the oldest sink that knows it waits for (EventSink).
  [[nodiscard]] std::string waits_for() const;

private:
  net::Loop& loop_;
  LogFunction log_;
  std::unique_ptr<storage::EventSink> sink_;
  std::vector<std::unique_ptr<storage::EventSink>> old_sinks_;
  std::deque<Assembly*> waiting_;
  std::optional<Error> failure_;
};

} // namespace fanin::builder
