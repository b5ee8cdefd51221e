#include "fanin/builder/building/commit_reporter.hpp"

#include <algorithm>
#include <span>

namespace fanin::builder {

void CommitReporter::clear() {
  received_.clear();
  handed_back_.clear();
  committed_.clear();
}

const std::vector<Assembly*>& CommitReporter::report(ControlClient& control, StatusReporter& status,
                                                     const storage::EventSink& sink) {
  reported_.clear();
  for (; !handed_back_.empty() && control.roomy(); handed_back_.pop_front()) {
    control.send(handed_back_.front());
  }
  for (; !received_.empty() && control.roomy(); received_.pop_front()) {
    control.send(received_.front());
  }
  while (!committed_.empty() && status.report_files(control, sink) &&
         report_built(control, *committed_.front())) {
    reported_.push_back(committed_.front());
    committed_.pop_front();
  }
  return reported_;
}

// In several messages where there are many exceptions. False: not all of it is said.
bool CommitReporter::report_built(ControlClient& control, Assembly& assembly) {
  wire::Built built;
  built.first = assembly.range.first;
  built.events = static_cast<std::uint32_t>(assembly.range.count());
  built.attempt = assembly.attempt;
  built.bytes = assembly.bytes;
  built.incomplete = assembly.incomplete;
  built.rejected = assembly.rejected;
  built.undecided = assembly.undecided;
  built.undelivered = assembly.undelivered;
  const std::size_t records = control.room_max() / sizeof(wire::MissingRange) / 3;
  const auto some = [records](const auto& list, std::size_t reported) {
    return std::span{list}.subspan(reported, std::min(list.size() - reported, records));
  };
  do {
    const auto missing = some(assembly.missing, assembly.missing_reported);
    const auto bad = some(assembly.bad, assembly.bad_reported);
    if (!control.roomy(missing.size_bytes() + bad.size_bytes())) return false;
    assembly.missing_reported += missing.size();
    assembly.bad_reported += bad.size();
    built.missing_ranges = static_cast<std::uint32_t>(missing.size());
    built.bad = static_cast<std::uint32_t>(bad.size());
    built.more = assembly.missing_reported < assembly.missing.size() ||
                         assembly.bad_reported < assembly.bad.size()
                     ? 1
                     : 0;
    control.send(built, missing, bad);
  } while (built.more != 0);
  return true;
}

} // namespace fanin::builder
