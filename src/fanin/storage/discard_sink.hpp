/// \file
/// A sink that discards everything and reports it as committed: for benchmarks without a disk.
#pragma once

#include <cstdint>
#include <vector>

#include "fanin/storage/event_sink.hpp"

namespace fanin::storage {

/// Thread: the loop's. Never busy, never fails; pages go home within submit().
class DiscardSink final : public EventSink {
public:
  [[nodiscard]] SubmitOutcome submit(BuiltBatch& batch) override;
  void finish() override { finishing_ = true; }
  [[nodiscard]] bool finished() const override { return finishing_ && committed_.empty(); }
  [[nodiscard]] std::uint64_t bytes_written() const override { return bytes_; } ///< payload taken

  bool poll() override;
  bool arm() override { return committed_.empty(); }

private:
  std::vector<std::uint64_t> committed_; // tickets, said at the next poll()
  std::vector<std::uint64_t> reporting_;
  std::uint64_t bytes_ = 0;
  bool finishing_ = false;
};

} // namespace fanin::storage
