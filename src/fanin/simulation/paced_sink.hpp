// A sink that takes built events at a given rate, as a disk or a second stage would, and keeps
// nothing.
#pragma once

#include <cstdint>
#include <deque>

#include "fanin/net/loop.hpp"
#include "fanin/storage/event_sink.hpp"

namespace fanin::simulation {

// Thread: that of its loop, whose clock may be virtual.
class PacedSink final : public storage::EventSink {
public:
  // `bytes_per_s` of payload; 0: as fast as it comes.
  PacedSink(net::Loop& loop, double bytes_per_s);
  ~PacedSink() override;
  PacedSink(const PacedSink&) = delete;
  PacedSink& operator=(const PacedSink&) = delete;

  [[nodiscard]] storage::SubmitOutcome submit(storage::BuiltBatch& batch) override;
  void finish() override { finishing_ = true; }
  [[nodiscard]] bool finished() const override { return finishing_ && waiting_.empty(); }
  [[nodiscard]] std::uint64_t bytes_written() const override { return bytes_; }
  bool poll() override;
  bool arm() override { return waiting_.empty() || waiting_.front().due > loop_.now(); }

private:
  struct Waiting {
    storage::BuiltBatch batch;
    Time due{};
  };

  net::Loop& loop_;
  double bytes_per_s_;
  std::deque<Waiting> waiting_;
  net::Timer timer_; // wakes the loop for the first of them
  Time free_{};
  std::uint64_t bytes_ = 0;
  bool finishing_ = false;
};

} // namespace fanin::simulation
