// A sink above another one: filter units decide which events are written.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>

#include "fanin/builder/filtering/filter_server.hpp"
#include "fanin/storage/sink_decorator.hpp"

namespace fanin::builder {

class FilterSink final : public storage::SinkDecorator, private FilterJob::Owner {
public:
  // `server` outlives it.
  FilterSink(std::unique_ptr<storage::EventSink> inner, RunNumber run, FilterServer& server);
  ~FilterSink() override;

  [[nodiscard]] storage::SubmitOutcome submit(storage::BuiltBatch& batch) override;
  void finish() override;
  void abandon() override;
  [[nodiscard]] bool finished() const override { return idle() && inner().finished(); }
  [[nodiscard]] std::string waits_for() const override;

  bool poll() override;

private:
  void decided(std::unique_ptr<FilterJob> job) override;
  void set_aside(std::uint64_t ticket) override { set_aside_(ticket); }
  void store();
  [[nodiscard]] bool idle() const { return undecided_ == 0 && to_store_.empty(); }

  RunNumber run_;
  FilterServer& server_;
  std::size_t undecided_ = 0; // batches
  std::deque<storage::BuiltBatch> to_store_; // decided
  std::map<std::uint64_t, Selected> storing_; // by ticket
  bool finishing_ = false;
};

} // namespace fanin::builder
