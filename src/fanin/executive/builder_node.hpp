// A builder unit with its sinks as a node.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "fanin/base/log_limiter.hpp"
#include "fanin/builder/building/builder_unit.hpp"
#include "fanin/builder/filtering/filter_server.hpp"
#include "fanin/executive/counting_sink.hpp"
#include "fanin/executive/event_publisher.hpp"
#include "fanin/executive/node.hpp"

namespace fanin::executive {

class BuilderNode final : public Node {
public:
  explicit BuilderNode(NodeContext context);

  // Errors: the data address cannot be listened on.
  [[nodiscard]] Result<> start() override;
  void stop() override;
  void stop_now(const std::string& why) override;
  // Files are closed after the run has ended for the unit.
  [[nodiscard]] bool ended() const override { return unit_ended_ && sink_log_.open == 0; }
  void describe(json::Value& report) override;
  void add_usage(json::Value& report) const override;
  [[nodiscard]] std::string end_message() const override;
  void turn() override;

  [[nodiscard]] builder::BuilderUnit* unit() { return unit_ ? &*unit_ : nullptr; } // null: it left

private:
  [[nodiscard]] Result<> start_filter_server();
  [[nodiscard]] Result<> start_publisher();
  void leave(const std::string& why);
  void watch_sinks();
  void abandon_if_stuck();
  [[nodiscard]] Result<std::unique_ptr<storage::EventSink>> make_sink(const wire::Welcome& welcome);
  void on_gone(const std::string& path, std::uint64_t events);

  std::size_t builder_;
  LogLimiter gone_lines_;
  SinkLog sink_log_;
  std::optional<builder::FilterServer> filters_; // none: nothing is filtered
  std::unique_ptr<EventPublisher> publisher_; // null: no event is published
  std::optional<builder::BuilderUnit> unit_; // after what its sinks refer to
  net::Timer full_tick_;
  std::uint64_t commits_before_ = 0;
  RunNumber run_ = 0; // 0: none yet
  bool stopping_ = false;
  bool had_sink_ = false; // it has had a sink
  bool first_sink_failed_ = false; // it had joined, but could not make its first sink
  bool left_early_ = false; // nothing of the run was lost with it
  bool unit_ended_ = false;
};

} // namespace fanin::executive
