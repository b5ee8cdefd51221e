// What is known of a run from the reports that its launcher passes on (executive/report.hpp).
#pragma once

#include <cstddef>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fanin/base/clock.hpp"
#include "fanin/base/json.hpp"
#include "fanin/operation/configuration_set.hpp"
#include "fanin/operation/event_sampler.hpp"
#include "fanin/operation/history.hpp"

namespace fanin::operation {

// Thread: one.
class RunStatus {
public:
  // Keeps the configurations.
  explicit RunStatus(ReadSet read);

  void on_report(const json::Value& report, Time now);

  // Each event builder has reported.
  [[nodiscard]] bool known() const;
  // One of them waits for the start of the run.
  [[nodiscard]] bool held() const;
  // All nodes are there, and the run waits for its start.
  [[nodiscard]] bool ready() const;
  // All event builders of the run have begun.
  [[nodiscard]] bool begun() const;
  // One of them stops by itself, or because it was asked to.
  [[nodiscard]] bool stopping() const;
  // Of nodes that are needed, one is gone; only once the run has begun. Empty: none.
  [[nodiscard]] std::vector<std::string> missing_nodes() const;
  // Event managers that say nothing, as their launchers say; empty: none.
  [[nodiscard]] std::vector<std::string> frozen_nodes() const;
  // Human-readable; empty: for nothing.
  [[nodiscard]] std::string waiting_for() const;
  [[nodiscard]] RunCounts counts() const;

  // Adds events, fragments, bytes_built, latency_us, nodes and sources.
  void add_to(json::Value& status, bool alive) const;
  // A node's page: role, configuration, keys and counters; null: there is no such node. `name`: as
  // add_to() names it.
  [[nodiscard]] json::Value node(std::string_view name) const;
  [[nodiscard]] std::vector<EventPlace> event_places() const;
  [[nodiscard]] std::string source_name(SourceId source) const;
  [[nodiscard]] const ReadSet& read() const { return read_; }

private:
  struct Usage { // the last two reports of a node
    json::Value latest;
    Time at{};
    json::Value before;
    Time before_at{};
  };
  struct Builder { // an event builder: of one configuration
    const config::Configuration* configuration = nullptr;
    std::string name; // of the configuration; empty: there is one only
    json::Value progress;
    json::Value summary;
    std::string frozen; // the event manager says nothing; empty: it does
    std::map<std::string, Usage> usage; // by node
  };
  [[nodiscard]] Builder* find(std::string_view configuration);
  [[nodiscard]] static std::string whole_name(const Builder& builder, std::string_view name);
  [[nodiscard]] json::Value node_of(const Builder& builder, const config::Node& node,
                                    bool alive) const;
  [[nodiscard]] bool counts_events(const Builder& builder) const;
  void add_sources(const Builder& builder, json::Value& sources) const;

  ReadSet read_;
  std::vector<Builder> builders_;
  Time latest_{}; // the last report
};

} // namespace fanin::operation
