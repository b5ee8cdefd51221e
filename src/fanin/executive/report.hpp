// What nodes tell the launcher, as JSON objects, one a line. The member "report" says which:
//
//   report     other members                           sent by
//   listening  node, url (its rails, a line each)      the event manager, once it can be reached
//   log        node, level, text                       every node
//   progress   node, time_s, state, events{}, ...      the event manager; state: waiting (for its
//                                                      begin), running or stopping; held: run
//                                                      control has not released it
//   summary    node, time_s, events{}, fragments{},    the event manager, where run control shows
//              bytes_built, latency_us{}, sources{},   the run (config::Run::controlled): each
//              nodes{}: as of `fanin run --json`, as   second, and when the run begins or stops,
//              of now; latency_us: of the last 5 to    or a node has come or gone
//              10 s
//   usage      node, process, cpu_s, rss_bytes,        every node, likewise, each second. cpu_s
//              sources{NAME: {read, bytes,             and rss_bytes: of its process. sources: of
//              counters{}}}, monitoring_url            a readout unit; read: fragments that were
//                                                      taken and not dropped, bytes: of their
//                                                      payload, since the process started;
//                                                      counters: as Source::counters().
//                                                      monitoring_url: where a builder unit
//                                                      really publishes events
//   result     node, the keys of `fanin run --json`    the event manager, at the end; waited_for,
//                                                      if the run never began
//   gone       node, file, what                        who wrote a file that was removed
//   silent     node, silent                            the event manager, or a builder unit: this
//                                                      node was given up
//   frozen     node, seconds                           the launcher: the event manager is silent
//   senders    node, urls[]                            a readout unit: its sources listen there
//   filters    node                                    a filter unit: it works
//   end        node, ok, error, started, joined,       every node, last. started: false if it
//              refused, too_late, its counters         could not; joined: it was in the run then;
//                                                      refused: of a filter unit, for good;
//                                                      too_late: for the run
#pragma once

#include <string>
#include <string_view>

#include "fanin/base/export.hpp"
#include "fanin/base/histogram.hpp"
#include "fanin/base/json.hpp"
#include "fanin/base/log.hpp"
#include "fanin/builder/ledger.hpp"
#include "fanin/builder/system.hpp"

namespace fanin::executive {

[[nodiscard]] FANIN_INTERNAL_API std::string_view name(LogLevel level);
[[nodiscard]] FANIN_INTERNAL_API LogLevel log_level(std::string_view name); // info, if it is none

// The ledger's five numbers.
[[nodiscard]] json::Value to_json(const builder::SourceLedger& ledger);

// The result object of a run: docs/command.md lists its keys.
[[nodiscard]] FANIN_INTERNAL_API json::Value to_json(const builder::RunSummary& summary,
                                                     const builder::System& system);

// The report "summary": what the result will say, without lists that may be long. `latency`: what
// it says of that.
[[nodiscard]] json::Value summary_report(const builder::RunSummary& summary,
                                         const builder::System& system, const Histogram& latency);

// Says that `file`, a `what`, is not at its name any more.
[[nodiscard]] json::Value gone_report(const std::string& file, const std::string& what);

// The few numbers of the live line.
[[nodiscard]] json::Value progress_of(const builder::RunSummary& summary);
// Sources whose fragments are in doubt, or of which nothing was built, and slices that got nothing
// of what was built for them. Empty: there are none.
[[nodiscard]] std::string not_in_order(const builder::RunSummary& summary);

// Adds what this process has used so far: peak_rss_bytes, cpu_s.
void add_resources(json::Value& report);
// Adds what it uses now: cpu_s, since its start, and rss_bytes.
void add_usage(json::Value& report);

} // namespace fanin::executive
