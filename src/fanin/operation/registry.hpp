// The registry of runs: for each run its number, what it ran with, who ran it and when, why it
// ended, its ledger and its log. One SQLite file (docs/operations.md has its tables), which several
// processes may use at the same time: who writes holds it for moments only.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "fanin/base/identity.hpp"
#include "fanin/base/json.hpp"
#include "fanin/base/result.hpp"
#include "fanin/operation/database.hpp"

namespace fanin::operation {

// A configuration as it was read, and what changed it.
struct UsedConfiguration {
  std::string name; // of the file
  std::string text;
  std::vector<std::string> overrides; // KEY=VALUE
};

struct NewRun {
  std::uint64_t id = 0; // random, as its files have it
  std::string kind; // "physics" or "test"
  std::string comment;
  std::string who; // the user
  std::string host;
  std::vector<UsedConfiguration> configurations;
  // What run control (`fanin serve`) has to know of it, to find it again; null: it is none of its.
  json::Value control;
  std::int64_t unix_ns = 0; // now
};

// Who does something, and when.
struct Change {
  std::string who;
  std::int64_t unix_ns = 0;
};

enum class Quality : std::uint8_t { unknown, good, bad };
[[nodiscard]] std::string_view name(Quality quality);
[[nodiscard]] std::optional<Quality> quality_named(std::string_view name);

struct LogLine {
  std::int64_t unix_ns = 0;
  std::string level;
  std::string text; // with its node
};

// How a run ended.
struct RunEnd {
  std::int64_t begun_ns = 0; // 0: it did not begin, or that is in the registry already
  std::int64_t ended_ns = 0;
  std::string reason;
  json::Value result; // the keys of `fanin run --json`; null: none
  std::vector<LogLine> log; // the last lines
};

// A change of the state in which a run is (states.hpp).
struct StateChange {
  std::int64_t unix_ns = 0;
  std::string from;
  std::string to;
  std::string command; // empty: none, it came by itself
  std::string who;
  std::string why;
};

// What somebody asked run control for.
struct AskedCommand {
  std::int64_t unix_ns = 0;
  std::string who;
  std::string command; // with what it was asked for
  std::string outcome;
};

struct RunEntry {
  RunNumber number = 0;
  std::uint64_t id = 0;
  std::string kind;
  std::string comment;
  Quality quality = Quality::unknown;
  std::string who;
  std::string host;
  std::int64_t reserved_ns = 0; // UTC, as all times
  std::int64_t begun_ns = 0; // 0: not
  std::int64_t ended_ns = 0; // 0: not, as far as is known
  std::string reason; // why it ended
  json::Value result; // the keys of `fanin run --json`; null: none
  json::Value control; // as in NewRun
};

// Which runs; all that is not given matches.
struct RunFilter {
  std::string kind;
  std::optional<Quality> quality;
  std::int64_t since_ns = 0; // reserved then or later
  RunNumber before = 0; // only lower numbers; 0: all
  std::uint64_t last = 0; // the last so many; 0: all
};

// Errors of all: those of Database; malformed: the file is of a later version, or none of runs.
// Knows no clock.
// Thread: one at a time.
class Registry {
public:
  // `patience`: as of Database.
  [[nodiscard]] static Result<Registry> open(const std::string& path, Database::Access access,
                                             Duration patience = std::chrono::seconds{10});
  // The user's own: in $XDG_STATE_HOME or ~/.local/state. Of a service of systemd, in its
  // StateDirectory: /var/lib/fanin.
  [[nodiscard]] static std::string usual_path();
  [[nodiscard]] const std::string& path() const { return database_->path(); }

  // Gives a run a number above all that the registry has, which is on disk then. `take` takes it,
  // or a higher one, wherever else numbers are given: what it refuses is not recorded.
  [[nodiscard]] Result<RunNumber>
  reserve(const NewRun& run, const std::function<Result<RunNumber>(RunNumber least)>& take);
  [[nodiscard]] Result<> begun(RunNumber run, std::int64_t unix_ns);
  [[nodiscard]] Result<> ended(RunNumber run, const RunEnd& end);
  [[nodiscard]] Result<> add_state(RunNumber run, const StateChange& change);
  [[nodiscard]] Result<> add_command(const AskedCommand& command);
  // Somebody starts it, and says of which kind it is.
  [[nodiscard]] Result<> started(RunNumber run, std::string_view kind, std::string_view who);
  // By whom it is changed, and what it was, stays known. Errors: not_found.
  [[nodiscard]] Result<> set_comment(RunNumber run, const std::string& text, const Change& by);
  [[nodiscard]] Result<> set_quality(RunNumber run, Quality quality, const Change& by);

  // Ascending by number.
  [[nodiscard]] Result<std::vector<RunEntry>> list(const RunFilter& filter);
  // Those of run control whose end is not known.
  [[nodiscard]] Result<std::vector<RunEntry>> unfinished();
  // Errors: not_found.
  [[nodiscard]] Result<RunEntry> find(RunNumber run);
  [[nodiscard]] Result<std::vector<UsedConfiguration>> configurations(RunNumber run);
  [[nodiscard]] Result<std::vector<LogLine>> log(RunNumber run);
  [[nodiscard]] Result<std::vector<StateChange>> states(RunNumber run);
  [[nodiscard]] Result<std::vector<std::string>> files(RunNumber run);
  // The last so many, the oldest first.
  [[nodiscard]] Result<std::vector<AskedCommand>> commands(std::uint64_t last);

private:
  explicit Registry(std::unique_ptr<Database> database) : database_(std::move(database)) {}
  [[nodiscard]] Result<> check_tables(Database::Access access);
  [[nodiscard]] Result<> add_configurations(RunNumber run, const NewRun& what);
  [[nodiscard]] Result<> change(RunNumber run, std::string_view column, std::string_view value,
                                const Change& by);

  std::unique_ptr<Database> database_;
};

} // namespace fanin::operation
