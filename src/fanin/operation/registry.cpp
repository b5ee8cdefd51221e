#include "fanin/operation/registry.hpp"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <utility>

#include <fmt/format.h>
#include <sodium.h>

#include "fanin/base/home.hpp"
#include "fanin/base/try.hpp"

namespace fanin::operation {
namespace {

constexpr int version = 1; // of the tables
constexpr int application = 0x666e5231; // "fnR1", by which the file is known
constexpr std::array qualities{std::pair{Quality::unknown, "unknown"},
                               std::pair{Quality::good, "good"}, std::pair{Quality::bad, "bad"}};

constexpr const char* tables = R"(
CREATE TABLE runs (
  number INTEGER PRIMARY KEY, id TEXT NOT NULL, kind TEXT NOT NULL, comment TEXT NOT NULL,
  quality TEXT NOT NULL, who TEXT NOT NULL, host TEXT NOT NULL,
  reserved_ns INTEGER NOT NULL, begun_ns INTEGER NOT NULL, ended_ns INTEGER NOT NULL,
  reason TEXT NOT NULL, result TEXT NOT NULL, control TEXT NOT NULL);
CREATE TABLE configurations (sha256 TEXT PRIMARY KEY, text TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE run_configurations (
  run INTEGER NOT NULL REFERENCES runs, position INTEGER NOT NULL, name TEXT NOT NULL,
  overrides TEXT NOT NULL, sha256 TEXT NOT NULL REFERENCES configurations, PRIMARY KEY (run, position)) WITHOUT ROWID;
CREATE TABLE log (
  run INTEGER NOT NULL REFERENCES runs, at_ns INTEGER NOT NULL, level TEXT NOT NULL,
  text TEXT NOT NULL);
CREATE INDEX log_of_run ON log (run);
CREATE TABLE states (
  run INTEGER NOT NULL REFERENCES runs, at_ns INTEGER NOT NULL, before TEXT NOT NULL,
  after TEXT NOT NULL, command TEXT NOT NULL, who TEXT NOT NULL, why TEXT NOT NULL);
CREATE INDEX states_of_run ON states (run);
CREATE TABLE files (
  run INTEGER NOT NULL REFERENCES runs, path TEXT NOT NULL, PRIMARY KEY (run, path)) WITHOUT ROWID;
CREATE TABLE commands (
  at_ns INTEGER NOT NULL, who TEXT NOT NULL, command TEXT NOT NULL, outcome TEXT NOT NULL);
CREATE TABLE changes (
  run INTEGER NOT NULL REFERENCES runs, at_ns INTEGER NOT NULL, who TEXT NOT NULL,
  what TEXT NOT NULL, before TEXT NOT NULL);
)";
constexpr const char* run_columns = "number, id, kind, comment, quality, who, host, "
                                    "reserved_ns, begun_ns, ended_ns, reason, result, control";

std::string sha256(std::string_view text) {
  std::array<unsigned char, crypto_hash_sha256_BYTES> hash;
  crypto_hash_sha256(hash.data(), reinterpret_cast<const unsigned char*>(text.data()), text.size());
  std::string hex;
  for (const unsigned char byte : hash) hex += fmt::format("{:02x}", byte);
  return hex;
}

RunEntry entry_of(const Statement& row) {
  RunEntry entry;
  entry.number = static_cast<RunNumber>(row.integer(0));
  entry.id = std::strtoull(row.text(1).c_str(), nullptr, 16);
  entry.kind = row.text(2);
  entry.comment = row.text(3);
  entry.quality = quality_named(row.text(4)).value_or(Quality::unknown);
  entry.who = row.text(5);
  entry.host = row.text(6);
  entry.reserved_ns = row.integer(7);
  entry.begun_ns = row.integer(8);
  entry.ended_ns = row.integer(9);
  entry.reason = row.text(10);
  if (auto result = json::Value::parse(row.text(11))) entry.result = std::move(*result);
  if (auto control = json::Value::parse(row.text(12))) entry.control = std::move(*control);
  return entry;
}

std::string text_of(const json::Value& value) { return value.is_null() ? "" : value.dump(); }

std::unexpected<Error> no_run(const std::string& path, RunNumber run) {
  return fail(ErrorKind::not_found, fmt::format("{}: has no run {}", path, run));
}

} // namespace

std::string_view name(Quality quality) {
  const auto* const found =
      std::ranges::find(qualities, quality, &decltype(qualities)::value_type::first);
  return found->second;
}

std::optional<Quality> quality_named(std::string_view name) {
  for (const auto& [quality, its_name] : qualities) {
    if (name == its_name) return quality;
  }
  return std::nullopt;
}

std::string Registry::usual_path() {
  constexpr const char* file = "/runs.sqlite";
  const auto folder = [](const char* variable) {
    const char* const value = std::getenv(variable);
    return value != nullptr && *value == '/' ? std::string(value) : std::string();
  };
  if (const std::string service = folder("STATE_DIRECTORY"); !service.empty())
    return service + file;
  const std::string state = folder("XDG_STATE_HOME");
  return (state.empty() ? expand_home("~/.local/state") : state) + "/fanin" + file;
}

// --- file ----------------------------------------------------------------------------------------

Result<Registry> Registry::open(const std::string& path, Database::Access access,
                                Duration patience) {
  Registry registry(FANIN_TRY(Database::open(path, access, patience)));
  FANIN_TRY(registry.check_tables(access));
  return registry;
}

// Two processes may make the tables at the same time: the second one finds them.
Result<> Registry::check_tables(Database::Access access) {
  const auto number = [this](const char* pragma) -> Result<std::int64_t> {
    auto statement = FANIN_TRY(database_->prepare(pragma));
    FANIN_TRY(statement.step());
    return statement.integer(0);
  };
  std::optional<Transaction> making;
  auto found = FANIN_TRY(number("PRAGMA user_version"));
  if (found == 0 && access == Database::Access::write) {
    making.emplace(FANIN_TRY(Transaction::begin(*database_)));
    found = FANIN_TRY(number("PRAGMA user_version"));
    const auto objects = FANIN_TRY(number("SELECT count(*) FROM sqlite_master"));
    if (found == 0 && objects == 0) {
      FANIN_TRY(database_->run(tables));
      FANIN_TRY(database_->run(
          fmt::format("PRAGMA application_id = {}; PRAGMA user_version = {}", application, version)
              .c_str()));
      found = version;
    }
    FANIN_TRY(making->commit());
  }
  const auto of = FANIN_TRY(number("PRAGMA application_id"));
  if (of != application)
    return fail(ErrorKind::malformed,
                fmt::format("{}: is no registry of runs: set another one (run.registry, "
                            "--registry)",
                            database_->path()));
  if (found > version)
    return fail(ErrorKind::malformed,
                fmt::format("{}: is of version {}, and this fanin knows versions up to {}: use a "
                            "later fanin, or another registry",
                            database_->path(), found, version));
  return {};
}

// --- runs ----------------------------------------------------------------------------------------

Result<RunNumber> Registry::reserve(const NewRun& run,
                                    const std::function<Result<RunNumber>(RunNumber least)>& take) {
  auto transaction = FANIN_TRY(Transaction::begin(*database_));
  auto highest = FANIN_TRY(database_->prepare("SELECT max(number) FROM runs"));
  FANIN_TRY(highest.step());
  const RunNumber number = FANIN_TRY(take(static_cast<RunNumber>(highest.integer(0)) + 1));
  auto insert = FANIN_TRY(database_->prepare(fmt::format(
      "INSERT INTO runs ({}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, 0, 0, '', '', ?)", run_columns)));
  insert.bind(std::int64_t{number})
      .bind(fmt::format("{:016x}", run.id))
      .bind(run.kind)
      .bind(run.comment)
      .bind(name(Quality::unknown))
      .bind(run.who)
      .bind(run.host)
      .bind(run.unix_ns)
      .bind(text_of(run.control));
  FANIN_TRY(insert.run());
  FANIN_TRY(add_configurations(number, run));
  FANIN_TRY(transaction.commit());
  return number;
}

Result<> Registry::add_configurations(RunNumber run, const NewRun& what) {
  for (std::size_t i = 0; i < what.configurations.size(); ++i) {
    const UsedConfiguration& one = what.configurations[i];
    const std::string hash = sha256(one.text);
    auto text = FANIN_TRY(
        database_->prepare("INSERT OR IGNORE INTO configurations (sha256, text) VALUES (?, ?)"));
    FANIN_TRY(text.bind(hash).bind(one.text).run());
    auto place = FANIN_TRY(database_->prepare(
        "INSERT INTO run_configurations (run, position, name, overrides, sha256) "
        "VALUES (?, ?, ?, ?, ?)"));
    json::List overrides(one.overrides.begin(), one.overrides.end());
    place.bind(std::int64_t{run}).bind(static_cast<std::int64_t>(i)).bind(one.name);
    place.bind(json::Value(std::move(overrides)).dump()).bind(hash);
    FANIN_TRY(place.run());
  }
  return {};
}

Result<> Registry::begun(RunNumber run, std::int64_t unix_ns) {
  auto update = FANIN_TRY(database_->prepare("UPDATE runs SET begun_ns = ? WHERE number = ?"));
  return update.bind(unix_ns).bind(std::int64_t{run}).run();
}

Result<> Registry::ended(RunNumber run, const RunEnd& end) {
  auto transaction = FANIN_TRY(Transaction::begin(*database_));
  auto update = FANIN_TRY(database_->prepare(
      "UPDATE runs SET begun_ns = CASE WHEN begun_ns = 0 THEN ? ELSE begun_ns END, ended_ns = ?, "
      "reason = ?, result = ? WHERE number = ?"));
  update.bind(end.begun_ns).bind(end.ended_ns).bind(end.reason).bind(text_of(end.result));
  FANIN_TRY(update.bind(std::int64_t{run}).run());
  for (const LogLine& line : end.log) {
    auto insert = FANIN_TRY(
        database_->prepare("INSERT INTO log (run, at_ns, level, text) VALUES (?, ?, ?, ?)"));
    insert.bind(std::int64_t{run}).bind(line.unix_ns).bind(line.level).bind(line.text);
    FANIN_TRY(insert.run());
  }
  std::vector<std::string> paths{end.result.at("manifest").text()};
  for (const json::Value& file : end.result.at("files").list()) paths.push_back(file.text());
  for (const std::string& path : paths) {
    if (path.empty()) continue;
    auto insert =
        FANIN_TRY(database_->prepare("INSERT OR IGNORE INTO files (run, path) VALUES (?, ?)"));
    FANIN_TRY(insert.bind(std::int64_t{run}).bind(path).run());
  }
  return transaction.commit();
}

Result<> Registry::add_state(RunNumber run, const StateChange& change) {
  auto insert = FANIN_TRY(database_->prepare("INSERT INTO states (run, at_ns, before, after, "
                                             "command, who, why) VALUES (?, ?, ?, ?, ?, ?, ?)"));
  insert.bind(std::int64_t{run}).bind(change.unix_ns).bind(change.from).bind(change.to);
  return insert.bind(change.command).bind(change.who).bind(change.why).run();
}

Result<> Registry::add_command(const AskedCommand& command) {
  auto insert = FANIN_TRY(database_->prepare(
      "INSERT INTO commands (at_ns, who, command, outcome) VALUES (?, ?, ?, ?)"));
  insert.bind(command.unix_ns).bind(command.who).bind(command.command).bind(command.outcome);
  return insert.run();
}

Result<> Registry::started(RunNumber run, std::string_view kind, std::string_view who) {
  auto update = FANIN_TRY(database_->prepare("UPDATE runs SET kind = ?, who = ? WHERE number = ?"));
  return update.bind(kind).bind(who).bind(std::int64_t{run}).run();
}

Result<> Registry::set_comment(RunNumber run, const std::string& text, const Change& by) {
  return change(run, "comment", text, by);
}

Result<> Registry::set_quality(RunNumber run, Quality quality, const Change& by) {
  return change(run, "quality", name(quality), by);
}

Result<> Registry::change(RunNumber run, std::string_view column, std::string_view value,
                          const Change& by) {
  auto transaction = FANIN_TRY(Transaction::begin(*database_));
  auto before =
      FANIN_TRY(database_->prepare(fmt::format("SELECT {} FROM runs WHERE number = ?", column)));
  const bool there = FANIN_TRY(before.bind(std::int64_t{run}).step());
  if (!there) return no_run(database_->path(), run);
  auto keep = FANIN_TRY(database_->prepare(
      "INSERT INTO changes (run, at_ns, who, what, before) VALUES (?, ?, ?, ?, ?)"));
  keep.bind(std::int64_t{run}).bind(by.unix_ns).bind(by.who).bind(column);
  FANIN_TRY(keep.bind(before.text(0)).run());
  auto update =
      FANIN_TRY(database_->prepare(fmt::format("UPDATE runs SET {} = ? WHERE number = ?", column)));
  FANIN_TRY(update.bind(value).bind(std::int64_t{run}).run());
  return transaction.commit();
}

// --- reading -------------------------------------------------------------------------------------

Result<std::vector<RunEntry>> Registry::list(const RunFilter& filter) {
  std::string query = fmt::format("SELECT {} FROM runs WHERE reserved_ns >= ?", run_columns);
  if (!filter.kind.empty()) query += " AND kind = ?";
  if (filter.quality) query += " AND quality = ?";
  if (filter.before != 0) query += " AND number < ?";
  query += " ORDER BY number DESC LIMIT ?";
  auto statement = FANIN_TRY(database_->prepare(query));
  statement.bind(filter.since_ns);
  if (!filter.kind.empty()) statement.bind(filter.kind);
  if (filter.quality) statement.bind(name(*filter.quality));
  if (filter.before != 0) statement.bind(std::int64_t{filter.before});
  statement.bind(filter.last == 0 ? std::int64_t{-1} : static_cast<std::int64_t>(filter.last));
  std::vector<RunEntry> entries;
  while (FANIN_TRY(statement.step())) entries.push_back(entry_of(statement));
  std::ranges::reverse(entries);
  return entries;
}

Result<std::vector<RunEntry>> Registry::unfinished() {
  auto statement = FANIN_TRY(database_->prepare(fmt::format(
      "SELECT {} FROM runs WHERE ended_ns = 0 AND control <> '' ORDER BY number", run_columns)));
  std::vector<RunEntry> entries;
  while (FANIN_TRY(statement.step())) entries.push_back(entry_of(statement));
  return entries;
}

Result<RunEntry> Registry::find(RunNumber run) {
  auto statement = FANIN_TRY(
      database_->prepare(fmt::format("SELECT {} FROM runs WHERE number = ?", run_columns)));
  const bool there = FANIN_TRY(statement.bind(std::int64_t{run}).step());
  if (!there) return no_run(database_->path(), run);
  return entry_of(statement);
}

Result<std::vector<UsedConfiguration>> Registry::configurations(RunNumber run) {
  auto statement =
      FANIN_TRY(database_->prepare("SELECT name, text, overrides FROM run_configurations JOIN "
                                   "configurations USING (sha256) WHERE run = ? "
                                   "ORDER BY position"));
  statement.bind(std::int64_t{run});
  std::vector<UsedConfiguration> all;
  while (FANIN_TRY(statement.step())) {
    all.push_back({statement.text(0), statement.text(1), {}});
    const auto overrides = json::Value::parse(statement.text(2));
    if (!overrides) continue;
    for (const json::Value& one : overrides->list()) all.back().overrides.push_back(one.text());
  }
  return all;
}

Result<std::vector<LogLine>> Registry::log(RunNumber run) {
  auto statement = FANIN_TRY(
      database_->prepare("SELECT at_ns, level, text FROM log WHERE run = ? ORDER BY rowid"));
  statement.bind(std::int64_t{run});
  std::vector<LogLine> lines;
  while (FANIN_TRY(statement.step()))
    lines.push_back({statement.integer(0), statement.text(1), statement.text(2)});
  return lines;
}

Result<std::vector<StateChange>> Registry::states(RunNumber run) {
  auto statement =
      FANIN_TRY(database_->prepare("SELECT at_ns, before, after, command, who, why FROM states "
                                   "WHERE run = ? ORDER BY rowid"));
  statement.bind(std::int64_t{run});
  std::vector<StateChange> changes;
  while (FANIN_TRY(statement.step()))
    changes.push_back({statement.integer(0), statement.text(1), statement.text(2),
                       statement.text(3), statement.text(4), statement.text(5)});
  return changes;
}

Result<std::vector<std::string>> Registry::files(RunNumber run) {
  auto statement = FANIN_TRY(database_->prepare("SELECT path FROM files WHERE run = ?"));
  statement.bind(std::int64_t{run});
  std::vector<std::string> paths;
  while (FANIN_TRY(statement.step())) paths.push_back(statement.text(0));
  return paths;
}

Result<std::vector<AskedCommand>> Registry::commands(std::uint64_t last) {
  auto statement = FANIN_TRY(database_->prepare(
      "SELECT at_ns, who, command, outcome FROM commands ORDER BY rowid DESC LIMIT ?"));
  statement.bind(static_cast<std::int64_t>(last));
  std::vector<AskedCommand> commands;
  while (FANIN_TRY(statement.step()))
    commands.push_back(
        {statement.integer(0), statement.text(1), statement.text(2), statement.text(3)});
  std::ranges::reverse(commands);
  return commands;
}

} // namespace fanin::operation
