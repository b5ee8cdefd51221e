// Runs of the registry as JSON and as configuration files, for `fanin runs` and for the API.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "fanin/base/json.hpp"
#include "fanin/base/result.hpp"
#include "fanin/operation/registry.hpp"

namespace fanin::operation {

// "2026-11-29 18:00:00", in UTC; "-": none.
[[nodiscard]] std::string time_text(std::int64_t unix_ns);
[[nodiscard]] double seconds_of(const RunEntry& run); // from its begin to its end
[[nodiscard]] std::string reason_of(const RunEntry& run);

// The keys of docs/command.md (`fanin runs --json`).
[[nodiscard]] json::Value to_json(const RunEntry& run);
// {"lines": [...]}
[[nodiscard]] json::Value to_json(std::span<const LogLine> lines, RunNumber run);
// With transitions, configurations, files and the ledger of each source. Errors: those of the
// registry.
[[nodiscard]] Result<json::Value> details_of(Registry& registry, const RunEntry& run);
// The files that reproduce the run, with what --set and other options had changed.
[[nodiscard]] Result<std::string> configurations_of(Registry& registry, RunNumber run);

} // namespace fanin::operation
