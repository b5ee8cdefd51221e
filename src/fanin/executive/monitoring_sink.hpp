// A sink above another one that shows some of the events that pass.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "fanin/executive/event_publisher.hpp"
#include "fanin/net/loop.hpp"
#include "fanin/storage/batch_events.hpp"
#include "fanin/storage/sink_decorator.hpp"

namespace fanin::executive {

// Which events are shown.
struct Sampling {
  RunNumber run = 0;
  std::uint32_t every = 1; // one in so many; a function of run and event number
  double rate_hz = 0; // most; 0: no limit
};

class MonitoringSink final : public storage::SinkDecorator {
public:
  // `output` and `loop` outlive it; several sinks may share them.
  MonitoringSink(std::unique_ptr<storage::EventSink> inner, EventOutput& output, net::Loop& loop,
                 const Sampling& sampling, storage::EventSources sources);

  [[nodiscard]] storage::SubmitOutcome submit(storage::BuiltBatch& batch) override;

private:
  [[nodiscard]] bool chosen(EventNumber detector_number) const;
  [[nodiscard]] bool has_chosen(const storage::BuiltBatch& batch) const;
  void show(const storage::BuiltBatch& batch);

  EventOutput& output_;
  net::Loop& loop_;
  Sampling sampling_;
  wire::Slice slice_;
  storage::BatchEvents events_;
  std::optional<std::uint64_t> shown_; // the ticket of a batch that the inner sink did not take
  Time next_{}; // with a rate: when the next event may be shown
};

} // namespace fanin::executive
