// What is known of several configurations that run as two stages (stage_launcher.hpp): the
// progress line, the result and its text.
#pragma once

#include <cstddef>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "fanin/base/export.hpp"
#include "fanin/base/json.hpp"
#include "fanin/config/configuration.hpp"

namespace fanin::executive {

// What a process that runs one of the configurations reports beside its log: the event manager's
// progress with `line` and `ready`, and at the end {"report": "result"} with the keys of
// `fanin run --json`.
class StagesView {
public:
  // The names are those of the files without folder and ending, where these differ. The
  // configurations outlive it.
  FANIN_INTERNAL_API explicit StagesView(std::span<const config::Configuration> configurations);

  [[nodiscard]] const std::string& name(std::size_t index) const { return entries_[index].name; }
  FANIN_INTERNAL_API void on_report(std::size_t index, const json::Value& report);
  // The latest report was the first of its round, in which each configuration reports its progress
  // once: one progress line a round is enough.
  [[nodiscard]] bool begins_round() const { return round_.size() == 1; }
  // It could not be started, did not end in good order, or ended too early.
  FANIN_INTERNAL_API void on_failure(std::size_t index, std::string why);

  // "  12.0 s  4.0 kHz  96 MB/s  48000 events  0 incomplete ..."; before the groups run: what is
  // waited for. If one makes no progress: also what it waits for.
  [[nodiscard]] FANIN_INTERNAL_API std::string progress_line() const;
  // The result object of all; docs/command.md lists its keys.
  [[nodiscard]] FANIN_INTERNAL_API json::Value result() const;

private:
  struct Entry {
    std::string name;
    const config::Configuration* configuration = nullptr;
    json::Value progress;
    json::Value earlier; // the progress report before
    json::Value result;
    std::string failure; // of its process; empty: none
  };

  [[nodiscard]] json::Value result_of(const Entry& entry) const;
  [[nodiscard]] std::string waiting_text() const;
  [[nodiscard]] static std::string waiting_text(const Entry& entry);
  [[nodiscard]] static bool lacks_node(const Entry& entry);

  std::vector<Entry> entries_;
  std::set<std::size_t> round_; // configurations that have reported their progress in it
  std::optional<std::size_t> first_failed_;
};

// The tables of all, and a verdict on the whole.
[[nodiscard]] FANIN_INTERNAL_API std::string stages_text(const json::Value& result);

} // namespace fanin::executive
