// What a builder unit has to tell the event manager of itself: its counters, what its sink waits
// for, and the names of new files of the sink.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "fanin/builder/control/control_client.hpp"
#include "fanin/storage/event_sink.hpp"

namespace fanin::builder {

class StatusReporter {
public:
  // A new sink.
  void clear() { files_reported_ = 0; }
  // After the names of new files. False: there is no room for all of it now.
  template <class Message>
  [[nodiscard]] bool send(ControlClient& control, const storage::EventSink& sink,
                          wire::NodeCounters& counters);
  // Sends nothing if all files of the sink were named. False: there is no room for all names now.
  [[nodiscard]] bool report_files(ControlClient& control, const storage::EventSink& sink);

private:
  std::size_t files_reported_ = 0;
};

inline bool StatusReporter::report_files(ControlClient& control, const storage::EventSink& sink) {
  if (sink.file_count() == files_reported_) return true;
  const auto files = sink.files();
  for (; files_reported_ < files.size(); ++files_reported_) {
    const std::string_view name = files[files_reported_];
    if (!control.roomy(name.size())) return false;
    control.send(wire::NewFile{static_cast<std::uint32_t>(name.size())}, name);
  }
  return true;
}

template <class Message>
bool StatusReporter::send(ControlClient& control, const storage::EventSink& sink,
                          wire::NodeCounters& counters) {
  if (!report_files(control, sink)) return false;
  const std::string text = sink.waits_for().substr(0, control.text_max(0));
  if (!control.roomy(text.size())) return false;
  counters.waits_for_size = static_cast<std::uint32_t>(text.size());
  control.send(Message{counters}, std::string_view{text});
  return true;
}

} // namespace fanin::builder
