/// \file
/// Sends what a builder unit of the first stage has built to the slices of the second, each event
/// as one super-fragment. A batch is committed when its slice has announced all of it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "fanin/net/stream/stream.hpp"
#include "fanin/storage/event_sink.hpp"
#include "fanin/storage/layout.hpp"
#include "fanin/storage/slice_link.hpp"
#include "fanin/wire/slice.hpp"

namespace fanin::storage {

struct ForwardSinkOptions {
  std::vector<net::Url> slices; ///< where each listens
  std::size_t builder = 0; ///< index of the builder unit, which serves the slices
  std::size_t builders = 1; ///< `builder`, `builder` + `builders`, and so on
  SourceId source = 0; ///< of the super-fragments, in each slice
  std::uint32_t block = 1024; ///< numbers are dealt in blocks of so many
  RunNumber run = 0;
  std::uint64_t run_id = 0; ///< random; equal for all builder units of the run
  bool integrity = true; ///< fragments have checksums, and super-fragments get one
  std::uint64_t sender = 1; ///< another one for each sink, not 0
  bool first = true; ///< of its builder unit in this run: nothing was sent before
  Duration give_up =
      std::chrono::seconds{30}; ///< how long a slice without connection is waited for
  std::vector<SourceInfo> sources; ///< of the run, in any order
  std::size_t depth = 256; ///< batches for one slice that are taken and not done; beyond: busy
  /// True: a later sink of the same builder unit has taken over. Then this one ends at once.
  std::function<bool()> superseded;
  LogFunction log;
};

/// Thread: the loop's. A batch must be for a slice that the builder unit serves, it must not cross
/// a multiple of `block`, and batches must come in the order of their events.
class ForwardSink final : public EventSink {
public:
  /// `loop` and `streams` must outlive it. Errors: exhausted.
  [[nodiscard]] static Result<std::unique_ptr<ForwardSink>>
  make(net::Loop& loop, net::Streams& streams, ForwardSinkOptions options);

  [[nodiscard]] SubmitOutcome submit(BuiltBatch& batch) override;
  void run_began(std::int64_t unix_ns) override; ///< connects to the slices
  void run_ended() override; ///< tells them that nothing follows
  void finish() override { finishing_ = true; }
  [[nodiscard]] bool finished() const override;
  void abandon() override { links_.clear(); }
  [[nodiscard]] std::uint64_t bytes_written() const override { return bytes_; } ///< delivered
  [[nodiscard]] std::string waits_for() const override; ///< the slice that stands for longest

  bool poll() override;
  [[nodiscard]] int descriptor() const override { return watch_->descriptor(); }

private:
  ForwardSink(net::Loop& loop, net::Streams& streams, ForwardSinkOptions options,
              std::unique_ptr<net::StreamWatch> watch);

  net::Loop& loop_;
  net::Streams& streams_;
  ForwardSinkOptions options_;
  std::unique_ptr<net::StreamWatch> watch_; // of all links
  std::vector<std::unique_ptr<SliceLink>> links_; // in the order of the slices that it serves
  net::Timer timer_;
  std::vector<SliceLink::Done> done_; // reused
  std::uint64_t bytes_ = 0;
  bool finishing_ = false;
};

} // namespace fanin::storage
