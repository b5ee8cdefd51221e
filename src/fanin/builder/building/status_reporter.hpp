// What a builder unit has to tell the event manager of itself: its counters, the names of new files
// of its sink, and what the sink waits for.
#pragma once

#include <algorithm>
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
  // False: there is no room for all of it now.
  template <class Message>
  [[nodiscard]] bool send(ControlClient& control, storage::EventSink& sink,
                          wire::NodeCounters& counters);
  // Sends nothing if all files of the sink were named. False: there is no room for all names now.
  [[nodiscard]] bool report_files(ControlClient& control, storage::EventSink& sink,
                                  wire::NodeCounters& counters) {
    if (sink.file_count() != files_reported_) (void)send<wire::Status>(control, sink, counters);
    return sink.file_count() == files_reported_;
  }
  // So many of the sink's files were named.
  [[nodiscard]] std::size_t files_reported() const { return files_reported_; }

private:
  std::size_t files_reported_ = 0;
};

template <class Message>
bool StatusReporter::send(ControlClient& control, storage::EventSink& sink,
                          wire::NodeCounters& counters) {
  const auto files = sink.files();
  std::string names;
  std::size_t named = files_reported_;
  for (; named < files.size(); ++named) {
    if (names.size() + files[named].size() + 1 > control.room_max()) break;
    names += files[named] + "\n";
  }
  if (!control.roomy(names.size())) return false;
  if (named == files.size()) { // what follows the last line break is no name
    std::string text = sink.waits_for().substr(0, control.text_max(names.size()));
    std::ranges::replace(text, '\n', ' ');
    if (control.roomy(names.size() + text.size())) names += text;
  }
  counters.text_size = static_cast<std::uint32_t>(names.size());
  control.send(Message{counters}, std::string_view{names});
  files_reported_ = named;
  return files_reported_ == files.size();
}

} // namespace fanin::builder
