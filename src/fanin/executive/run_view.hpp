// What is known of a run from its nodes' reports (report.hpp): the progress line, the result, and
// the result as a human-readable table. It does not matter in which process a node is.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "fanin/base/export.hpp"
#include "fanin/base/json.hpp"
#include "fanin/config/configuration.hpp"
#include "fanin/executive/child.hpp"
#include "fanin/executive/memory_plan.hpp"

namespace fanin::executive {

class RunView {
public:
  // `plans`: the memory of each node, for the result; it outlives the view.
  RunView(const config::Configuration& configuration, const std::vector<NodePlan>& plans)
      : configuration_(configuration), plans_(plans) {}

  FANIN_INTERNAL_API void on_report(const json::Value& report);
  void on_exit(const std::string& process, const ChildExit& exit);

  // True: nothing but senders of sources is missing, or the run has begun.
  [[nodiscard]] FANIN_INTERNAL_API bool only_senders_missing() const;
  [[nodiscard]] bool has_result() const { return !result_.is_null(); }
  // "  12.0 s  20.0 kHz  96 MB/s  ..."; empty before the first report.
  [[nodiscard]] FANIN_INTERNAL_API std::string progress_line() const;
  // The result object; where the event manager did not live to give one, the sums of what the nodes
  // themselves say.
  [[nodiscard]] FANIN_INTERNAL_API json::Value result() const;
  // How the nodes here have ended, where the event manager is elsewhere: ok, error, files, nodes.
  [[nodiscard]] FANIN_INTERNAL_API json::Value nodes_result() const;

private:
  void add_resources(json::Value& result) const;
  void add_source_counters(json::Value& result) const;
  void add_failures(json::Value& result) const;
  void add_gone(json::Value& result) const;
  [[nodiscard]] json::Value sum_of_nodes() const;
  void add_ends(json::Value& result) const;
  void add_manifest(json::Value& result) const;
  [[nodiscard]] std::string add_not_summed(json::Value& result) const;

  const config::Configuration& configuration_;
  const std::vector<NodePlan>& plans_;
  json::Value progress_;
  json::Value earlier_; // the progress report before
  json::Value result_;
  // By node: the last end, with what was counted in all starts that had one.
  std::map<std::string, json::Value> ends_;
  std::set<std::string> ended_; // nodes that have said how they end, in processes that live
  std::map<std::string, std::uint64_t> died_; // nodes: how often one died without saying it
  std::set<std::string> failed_early_; // nodes that failed while the run was not over
  // By node: how often it joined, and could not take part.
  std::map<std::string, std::uint64_t> could_not_join_;
  std::map<std::string, ChildExit> exits_; // by process
  std::map<std::string, std::string> died_early_; // before the run began: process, and how
  std::map<std::string, std::string>
      gone_files_; // files that are not at their names, and what they are
  std::uint64_t frozen_s_ = 0; // so long the event manager has reported nothing
  bool begun_ = false; // all nodes were there once
};

// The result as a table of some lines.
[[nodiscard]] FANIN_INTERNAL_API std::string summary_text(const json::Value& result);
// The readout units that died or failed in a run, "ru0, ru1"; empty: none.
[[nodiscard]] std::string dead_readout_units(const json::Value& result);
// ", 3 fragments dropped", which follows the verdict; empty: none.
[[nodiscard]] std::string dropped_text(std::uint64_t fragments);
// What each node has counted, from nodes_result(), a line each.
[[nodiscard]] FANIN_INTERNAL_API std::string nodes_text(const json::Value& nodes_result);

// True if the run ended in good order and its ledger is balanced: exit status 0.
[[nodiscard]] FANIN_INTERNAL_API bool succeeded(const json::Value& result);

} // namespace fanin::executive
