// What nodes tell the launcher, as JSON objects, one a line. The member "report" says which:
//   listening  node, url                      the event manager can be reached
//   log        node, level, text
//   progress   node, time_s, state, events{}, bytes_built, buffers{}, ...   the event manager, live
//   result     node, and the keys of `fanin run --json`                     the event manager, at
//   the end
//   gone       node, file, what               somebody else has removed or renamed a file of the
//   run end        node, ok, error, started (false: it could not), joined (true: it had joined the
//   run when it found that), and the node's own counters; every node, last
#pragma once

#include <string>
#include <string_view>

#include "fanin/base/export.hpp"
#include "fanin/base/json.hpp"
#include "fanin/base/log.hpp"
#include "fanin/builder/ledger.hpp"
#include "fanin/builder/system.hpp"

namespace fanin::executive {

[[nodiscard]] std::string_view name(LogLevel level);
[[nodiscard]] FANIN_INTERNAL_API LogLevel log_level(std::string_view name); // info, if it is none

// The ledger's five numbers.
[[nodiscard]] json::Value to_json(const builder::SourceLedger& ledger);

// The result object of a run: docs/command.md lists its keys.
[[nodiscard]] json::Value to_json(const builder::RunSummary& summary,
                                  const builder::System& system);

// `file`, which is `what`, is not at its name any more.
[[nodiscard]] json::Value gone_report(const std::string& file, const std::string& what);

// The few numbers of the live line.
[[nodiscard]] json::Value progress_of(const builder::RunSummary& summary);

// Of this process so far: peak_rss_bytes, cpu_s.
void add_resources(json::Value& report);

} // namespace fanin::executive
