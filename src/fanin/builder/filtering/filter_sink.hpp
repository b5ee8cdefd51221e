// A sink above another one: filter units decide which events are written.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "fanin/builder/filtering/filter_server.hpp"
#include "fanin/storage/event_sink.hpp"

namespace fanin::builder {

class FilterSink final : public storage::EventSink, private FilterJob::Owner {
public:
  // `server` outlives it.
  FilterSink(std::unique_ptr<storage::EventSink> inner, RunNumber run, FilterServer& server);
  ~FilterSink() override;

  [[nodiscard]] storage::SubmitOutcome submit(storage::BuiltBatch& batch) override;
  void run_began() override { inner_->run_began(); }
  void run_ended() override { inner_->run_ended(); }
  void finish() override;
  void abandon() override;
  [[nodiscard]] bool finished() const override { return idle() && inner_->finished(); }
  [[nodiscard]] std::vector<std::string> files() const override { return inner_->files(); }
  [[nodiscard]] std::size_t file_count() const override { return inner_->file_count(); }
  [[nodiscard]] std::uint64_t bytes_written() const override { return inner_->bytes_written(); }
  [[nodiscard]] std::string waits_for() const override;

  bool poll() override;
  bool arm() override { return inner_->arm(); }
  [[nodiscard]] int descriptor() const override { return inner_->descriptor(); }

private:
  void decided(std::unique_ptr<FilterJob> job) override;
  void set_aside(std::uint64_t ticket) override { set_aside_(ticket); }
  void store();
  [[nodiscard]] bool idle() const { return undecided_ == 0 && to_store_.empty(); }

  std::unique_ptr<storage::EventSink> inner_;
  RunNumber run_;
  FilterServer& server_;
  std::size_t undecided_ = 0; // batches
  std::deque<storage::BuiltBatch> to_store_; // decided
  std::map<std::uint64_t, Selected> storing_; // by ticket
  bool finishing_ = false;
};

} // namespace fanin::builder
