#include "fanin/operation/database.hpp"

#include <cerrno>
#include <cstring>
#include <utility>

#include <unistd.h>

#include <fmt/format.h>
#include <sqlite3.h>

#include "fanin/base/try.hpp"

namespace fanin::operation {
namespace {

std::unexpected<Error> failed(const std::string& path, sqlite3* handle, int code) {
  const char* const reason = handle == nullptr ? sqlite3_errstr(code) : sqlite3_errmsg(handle);
  if (code == SQLITE_READONLY_DBMOVED)
    return fail(ErrorKind::refused,
                fmt::format("{}: was moved or deleted while it was in use: put it back", path));
  switch (code & 0xff) {
  case SQLITE_BUSY:
  case SQLITE_LOCKED:
    return fail(ErrorKind::refused,
                fmt::format("{}: another process holds it (fuser shows which one); try again when "
                            "it has ended",
                            path));
  case SQLITE_NOTADB:
  case SQLITE_CORRUPT:
    return fail(ErrorKind::malformed,
                fmt::format("{}: is no registry of runs, or damaged ({}): move it away, or set "
                            "another one (run.registry, --registry)",
                            path, reason));
  case SQLITE_FULL:
    return fail(ErrorKind::exhausted, fmt::format("{}: the disk is full: make room", path));
  case SQLITE_READONLY:
  case SQLITE_PERM:
    return fail(ErrorKind::refused, fmt::format("{}: may not be written by this user", path));
  case SQLITE_CANTOPEN:
    return fail(ErrorKind::refused,
                fmt::format("{}: cannot be opened ({}): is its folder there, and may this user "
                            "write into it?",
                            path, reason));
  case SQLITE_IOERR: {
    const int number = handle == nullptr ? 0 : sqlite3_system_errno(handle);
    const bool full = number == ENOSPC || number == EDQUOT || number == EFBIG;
    return fail(full ? ErrorKind::exhausted : ErrorKind::refused,
                fmt::format("{}: {}", path, number == 0 ? reason : std::strerror(number)));
  }
  default: return fail(ErrorKind::internal, fmt::format("{}: {}", path, reason));
  }
}

} // namespace

// --- Statement -----------------------------------------------------------------------------------

void Statement::Finalize::operator()(sqlite3_stmt* statement) const { sqlite3_finalize(statement); }

Statement& Statement::bind(std::int64_t value) {
  sqlite3_bind_int64(handle_.get(), ++bound_, value);
  return *this;
}

Statement& Statement::bind(std::string_view text) {
  sqlite3_bind_text64(handle_.get(), ++bound_, text.data(), text.size(), SQLITE_TRANSIENT,
                      SQLITE_UTF8);
  return *this;
}

Result<bool> Statement::step() {
  const int code = sqlite3_step(handle_.get());
  if (code == SQLITE_ROW) return true;
  if (code == SQLITE_DONE) return false;
  return failed(path_, sqlite3_db_handle(handle_.get()), code);
}

Result<> Statement::run() {
  while (FANIN_TRY(step())) continue;
  return {};
}

std::int64_t Statement::integer(int column) const {
  return sqlite3_column_int64(handle_.get(), column);
}

std::string Statement::text(int column) const {
  const unsigned char* const bytes = sqlite3_column_text(handle_.get(), column);
  if (bytes == nullptr) return {};
  return {reinterpret_cast<const char*>(bytes),
          static_cast<std::size_t>(sqlite3_column_bytes(handle_.get(), column))};
}

// --- Database ------------------------------------------------------------------------------------

Result<std::unique_ptr<Database>> Database::open(const std::string& path, Access access,
                                                 Duration patience) {
  // A reader, too, undoes what a process that was killed had half written. Where it may not write,
  // the file is opened for reading only.
  const int flags =
      access == Access::read ? SQLITE_OPEN_READWRITE : SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE;
  sqlite3* handle = nullptr;
  const int code = sqlite3_open_v2(path.c_str(), &handle, flags | SQLITE_OPEN_EXRESCODE, nullptr);
  std::unique_ptr<Database> database(new Database(path, handle));
  if (access == Access::read && (code & 0xff) == SQLITE_CANTOPEN &&
      ::access(path.c_str(), F_OK) != 0)
    return fail(ErrorKind::not_found,
                fmt::format("{}: there is no registry of runs: give the file that run.registry "
                            "names (--registry)",
                            path));
  if (code != SQLITE_OK) return failed(path, handle, code);
  const auto patience_ms = std::chrono::duration_cast<std::chrono::milliseconds>(patience);
  sqlite3_busy_timeout(handle, static_cast<int>(patience_ms.count()));
  // A write-ahead log fails on the file systems of clusters.
  if (access == Access::write)
    FANIN_TRY(database->run("PRAGMA journal_mode = DELETE; PRAGMA synchronous = FULL"));
  if (access == Access::read) FANIN_TRY(database->run("PRAGMA query_only = ON"));
  FANIN_TRY(database->run("PRAGMA foreign_keys = ON"));
  return database;
}

Database::~Database() { sqlite3_close(handle_); }

Result<Statement> Database::prepare(std::string_view query) {
  sqlite3_stmt* statement = nullptr;
  const int code = sqlite3_prepare_v2(handle_, query.data(), static_cast<int>(query.size()),
                                      &statement, nullptr);
  if (code != SQLITE_OK) return failed(path_, handle_, code);
  return Statement(path_, statement);
}

Result<> Database::run(const char* queries) {
  const int code = sqlite3_exec(handle_, queries, nullptr, nullptr, nullptr);
  if (code != SQLITE_OK) return failed(path_, handle_, code);
  return {};
}

// --- Transaction ---------------------------------------------------------------------------------

Result<Transaction> Transaction::begin(Database& database) {
  FANIN_TRY(database.run("BEGIN IMMEDIATE"));
  return Transaction(database);
}

Transaction::Transaction(Transaction&& other) noexcept
    : database_(std::exchange(other.database_, nullptr)) {}

Transaction::~Transaction() {
  if (database_ != nullptr) (void)database_->run("ROLLBACK");
}

Result<> Transaction::commit() {
  FANIN_TRY(database_->run("COMMIT"));
  database_ = nullptr;
  return {};
}

} // namespace fanin::operation
