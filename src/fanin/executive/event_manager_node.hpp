// The event manager with the run's record as a node.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "fanin/builder/manager/event_manager.hpp"
#include "fanin/executive/node.hpp"
#include "fanin/executive/recent_latency.hpp"

namespace fanin::executive {

class EventManagerNode final : public Node {
public:
  explicit EventManagerNode(NodeContext context);

  // Errors: the address cannot be listened on; those of the run's record.
  [[nodiscard]] Result<> start() override;
  void stop() override;
  void stop_now(const std::string& why) override;
  [[nodiscard]] bool ended() const override { return ended_; }
  [[nodiscard]] std::vector<net::Url> listening() const override { return manager_->urls(); }
  void start_run() override;
  void process_died(std::uint64_t session) override;
  void no_builder_left(const std::string& why) override;
  void turn() override;

  [[nodiscard]] builder::EventManager& manager() { return *manager_; } // after start()

private:
  [[nodiscard]] Result<> make_record();
  void on_end(const builder::RunSummary& summary);
  void on_silent(const builder::NodeKey& key);
  void on_duration();
  void finish_record();
  void on_progress_tick();
  [[nodiscard]] std::string_view state() const;
  [[nodiscard]] double time_s() const; // since the run has begun; 0 before
  void report_progress();
  void report_summary();
  void tell_of_stop();
  void warn_of_waiting();
  void check_record();
  void watch_drain(const builder::RunSummary& summary);

  std::unique_ptr<RunRecord> record_; // made when the manager listens and is not held; null:
                                      // nothing is written
  std::optional<builder::EventManager> manager_;
  net::Timer progress_tick_;
  net::Timer duration_tick_;
  net::Timer record_tick_; // after the end
  Time record_by_{};
  std::uint64_t progress_ticks_ = 0;
  json::Value result_; // until the record is written
  Time started_at_{};
  Duration warn_after_; // that the run waits to begin
  Time began_at_ = never; // all nodes were there
  // As the last summary said: the state of the run, and of each node how often it has started and
  // whether it is there.
  std::string_view said_state_;
  std::vector<std::pair<Incarnation, bool>> said_nodes_;
  Time summary_at_{}; // it was reported
  RecentLatency latency_;
  bool duration_is_over_ = false;
  bool ended_ = false;
  std::uint64_t built_before_ = 0;
  Time stuck_since_{}; // something is to be built, and is not
  Time stopping_since_ = never;
};

} // namespace fanin::executive
