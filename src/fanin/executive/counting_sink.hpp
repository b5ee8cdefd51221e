// A sink above another one that counts what is committed: a builder unit's own ledger, for the case
// that the event manager dies.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "fanin/executive/observer.hpp"
#include "fanin/net/loop.hpp"
#include "fanin/storage/sink_decorator.hpp"

namespace fanin::executive {

struct SinkLog {
  std::uint64_t events = 0; // committed
  std::uint64_t fragments = 0;
  std::uint64_t bytes = 0;
  std::uint64_t commits = 0;
  std::uint64_t open = 0; // sinks that are not destroyed yet
  std::uint64_t waiting = 0; // batches that storage has taken and not committed
  Time stuck_since{}; // while some wait: nothing was committed
  bool full = false; // likewise: the disk is
  std::vector<std::string> files; // of those that are
};

class CountingSink final : public storage::SinkDecorator {
public:
  // `loop`, `log` and `observer` (null: none) outlive the sink; several sinks may share them.
  // `sources`: how many the run has.
  CountingSink(std::unique_ptr<storage::EventSink> inner, std::size_t sources,
               const net::Loop& loop, SinkLog& log, Observer* observer)
      : SinkDecorator(std::move(inner)),
        sources_(sources),
        loop_(loop),
        log_(log),
        observer_(observer) {
    ++log_.open;
    this->inner().on_commit([this](const storage::Committed& committed) {
      const Waiting batch = take(committed.ticket);
      ++log_.commits;
      log_.events += batch.events;
      log_.fragments += batch.fragments;
      log_.bytes += batch.bytes;
      log_.stuck_since = loop_.now();
      log_.full = false;
      commit_(committed);
    });
    this->inner().on_failure([this](const Error& error, bool fatal) {
      log_.full = error.kind == ErrorKind::exhausted;
      failure_(error, fatal);
    });
  }
  ~CountingSink() override {
    inner().abandon();
    --log_.open;
    log_.waiting -= waiting_.size();
    for (auto& file : inner().files()) log_.files.push_back(std::move(file));
  }

  [[nodiscard]] storage::SubmitOutcome submit(storage::BuiltBatch& batch) override {
    // Counted first: an accepted batch is gone.
    const std::uint64_t ticket = batch.ticket;
    std::uint64_t events = batch.range.count();
    for (const EventRange& gap : batch.gaps)
      if (gap.first >= batch.range.first) events -= gap.count();
    std::uint64_t fragments = events * sources_;
    for (const auto& missing : batch.missing) fragments -= missing.events.count();
    std::uint64_t bytes = 0;
    for (const auto& piece : batch.pieces) bytes += piece.payload.size;
    if (log_.waiting == 0) log_.stuck_since = loop_.now();
    waiting_.push_back({ticket, events, fragments, bytes}); // it may be committed at once
    ++log_.waiting;
    const auto outcome = inner().submit(batch);
    if (outcome != storage::SubmitOutcome::accepted) {
      (void)take(ticket);
    } else if (observer_ != nullptr) {
      observer_->on_batch({events, fragments, bytes});
    }
    return outcome;
  }

private:
  struct Waiting {
    std::uint64_t ticket;
    std::uint64_t events;
    std::uint64_t fragments;
    std::uint64_t bytes;
  };

  // It does not wait any more.
  [[nodiscard]] Waiting take(std::uint64_t ticket) {
    const auto found = std::ranges::find(waiting_, ticket, &Waiting::ticket);
    const Waiting batch = *found;
    waiting_.erase(found);
    --log_.waiting;
    return batch;
  }

  std::size_t sources_;
  const net::Loop& loop_;
  SinkLog& log_;
  std::vector<Waiting> waiting_; // accepted and not committed, in order
  Observer* observer_;
};

} // namespace fanin::executive
