// A filter unit with the user's filter as a node.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "fanin/builder/filtering/filter.hpp"
#include "fanin/builder/filtering/filter_unit.hpp"
#include "fanin/executive/node.hpp"
#include "fanin/executive/time_limit.hpp"

namespace fanin::executive {

// What the filter of a node is made from.
[[nodiscard]] builder::FilterSettings filter_settings(const config::Configuration& configuration,
                                                      std::size_t node, LogFunction log);

class FilterNode final : public Node {
public:
  explicit FilterNode(NodeContext context)
      : Node(std::move(context)), restart_([this] { begin_again(); }) {}

  // To be called once, before start(). Errors: those of the filter.
  [[nodiscard]] Result<> make();

  // Errors: there is no timer.
  [[nodiscard]] Result<> start() override;
  void stop() override;
  void stop_now(const std::string& why) override;
  [[nodiscard]] bool ended() const override { return ended_; }
  void describe(json::Value& report) override;
  [[nodiscard]] std::string end_message() const override;

private:
  void make_unit();
  void failed(const Error& error);
  void begin_again();
  void leave();
  [[nodiscard]] builder::FilterUnit::Counters counters() const;

  std::unique_ptr<builder::Filter> filter_;
  std::optional<builder::FilterUnit> unit_;
  builder::FilterUnit::Counters counters_; // of those that have left
  std::optional<TimeLimit> limit_; // none: other nodes are in its process
  net::Timer restart_;
  bool ended_ = false;
};

} // namespace fanin::executive
