// What a builder unit has to tell the event manager: what has come, what it hands back, what is
// committed, and its counters and files. Storage may be faster than the event manager reads, and
// lists of exceptions are long: what there is no room for is said later.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "fanin/builder/building/assembler.hpp"
#include "fanin/builder/control/control_client.hpp"

namespace fanin::builder {

class CommitReporter {
public:
  // `filters_wait_for`: as in BuilderOptions.
  explicit CommitReporter(std::function<std::string()> filters_wait_for)
      : filters_wait_for_(std::move(filters_wait_for)) {}
  void received(const Assembly& assembly) {
    received_.push_back({assembly.range.first, assembly.attempt});
  }
  // Storage keeps it longer than others, in memory of its own.
  void set_aside(const Assembly& assembly) {
    received_.push_back({assembly.range.first, assembly.attempt, 1});
  }
  // `blamed`: the readout unit whose blocks do not come.
  void handed_back(const Assembly& assembly, std::optional<NodeId> blamed) {
    handed_back_.push_back(
        {assembly.range.first, assembly.attempt, blamed.value_or(0), blamed ? 1U : 0U});
  }
  // It stays as it is until report() gives it.
  void committed(Assembly& assembly) { committed_.push_back(&assembly); }
  void clear();

  // Sends what there is room for. The names of new files of the sink come before what is in them.
  // Gives the assemblies that were reported; valid until the next call.
  [[nodiscard]] const std::vector<Assembly*>&
  report(ControlClient& control, storage::EventSink& sink, wire::NodeCounters& counters);
  // All is said.
  [[nodiscard]] bool done() const {
    return received_.empty() && handed_back_.empty() && committed_.empty();
  }
  // Counters, the names of files that are new, and what filter units have to do. False: there is no
  // room for all of it now.
  template <class Message>
  [[nodiscard]] bool send_counters(ControlClient& control, storage::EventSink& sink,
                                   wire::NodeCounters& counters);
  // So many of the sink's files were named.
  [[nodiscard]] std::size_t files_reported() const { return files_reported_; }

private:
  [[nodiscard]] bool report_files(ControlClient& control, storage::EventSink& sink,
                                  wire::NodeCounters& counters);
  [[nodiscard]] static bool report_built(ControlClient& control, Assembly& assembly);

  std::function<std::string()> filters_wait_for_; // may be empty
  std::deque<wire::Received> received_;
  std::deque<wire::HandBack> handed_back_;
  std::deque<Assembly*> committed_;
  std::vector<Assembly*> reported_; // by the latest report()
  std::size_t files_reported_ = 0;
};

template <class Message>
bool CommitReporter::send_counters(ControlClient& control, storage::EventSink& sink,
                                   wire::NodeCounters& counters) {
  const auto files = sink.files();
  std::string names;
  std::size_t named = files_reported_;
  for (; named < files.size(); ++named) {
    if (names.size() + files[named].size() + 1 > control.room_max()) break;
    names += files[named] + "\n";
  }
  if (!control.roomy(names.size())) return false;
  if (filters_wait_for_ && named == files.size()) {
    const std::string text = filters_wait_for_();
    if (control.roomy(names.size() + text.size())) names += text;
  }
  counters.text_size = static_cast<std::uint32_t>(names.size());
  control.send(Message{counters}, std::string_view{names});
  files_reported_ = named;
  return files_reported_ == files.size();
}

} // namespace fanin::builder
