/// \file
/// Replays one port (part) of an slsDetector recording. A record is a fragment, its frame number
/// the event number. It is read from the file directly into the queue's pages.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "fanin/source/replay.hpp"
#include "fanin/source/sls_file.hpp"
#include "fanin/source/source.hpp"

namespace fanin::source {

struct SlsOptions {
  SlsPattern files;
  std::uint64_t image_size = 0; ///< bytes, without the header
  ReplayOptions replay;
};

class SlsSource final : public Source {
public:
  /// Opens the first file. Errors: not_found, refused, malformed, usage.
  [[nodiscard]] static Result<std::unique_ptr<SlsSource>> make(const SlsOptions& options);
  SlsSource(const SlsOptions& options, SlsReader reader);

  [[nodiscard]] Result<> start(EventNumber first_event, Time now) override;
  [[nodiscard]] ReadResult read(FragmentQueue& queue, Time now) override;
  [[nodiscard]] bool on_demand() const override { return !pacer_.paced(); }
  [[nodiscard]] std::vector<SourceCounter> counters() const override;

private:
  enum class Step : std::uint8_t { record, pass_end, end };
  [[nodiscard]] Result<Step> next_step();
  [[nodiscard]] Result<WriteOutcome> write_record(FragmentQueue& queue);

  SlsReader reader_;
  ReplayNumbers numbers_;
  Pacer pacer_;
  EventNumber number_ = 0;
  bool pending_ = false; // the record waits for room in the queue
  std::uint32_t packets_full_ = 0; // the most packets that a record was made of
  std::uint64_t packets_lost_ = 0; // records made of fewer
  Result<> failure_;
};

} // namespace fanin::source
