// An SQLite file: statements with values in and out, and errors as lines with the remedy.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include <sqlite3.h>

#include "fanin/base/clock.hpp"
#include "fanin/base/result.hpp"

namespace fanin::operation {

// A query whose values are bound in order, and whose columns are read in order.
class Statement {
public:
  Statement& bind(std::int64_t value);
  Statement& bind(std::string_view text);
  // True: there is a row. Errors: as those of Database.
  [[nodiscard]] Result<bool> step();
  // To the end; no row is looked at.
  [[nodiscard]] Result<> run();
  // Of the row; columns are counted from 0.
  [[nodiscard]] std::int64_t integer(int column) const;
  [[nodiscard]] std::string text(int column) const;

private:
  friend class Database;
  struct Finalize {
    void operator()(sqlite3_stmt* statement) const;
  };
  Statement(const std::string& path, sqlite3_stmt* statement) : path_(path), handle_(statement) {}

  const std::string& path_; // of the database
  std::unique_ptr<sqlite3_stmt, Finalize> handle_;
  int bound_ = 0;
};

// Errors of all: not_found (there is no file to read), refused (locked by another process for long,
// read-only, no such folder), exhausted (a full disk), malformed (it is no such file, or damaged).
// Thread: one at a time.
class Database {
public:
  enum class Access : std::uint8_t {
    read, // a file that is there
    write // it is made where there is none
  };
  // A change is on disk when the call that made it returns.
  // `patience`: how long another process that writes is waited for.
  [[nodiscard]] static Result<std::unique_ptr<Database>>
  open(const std::string& path, Access access, Duration patience = std::chrono::seconds{10});
  ~Database();
  Database(const Database&) = delete;
  Database& operator=(const Database&) = delete;

  [[nodiscard]] Result<Statement> prepare(std::string_view query);
  // Statements without values.
  [[nodiscard]] Result<> run(const char* queries);
  [[nodiscard]] const std::string& path() const { return path_; }

private:
  Database(std::string path, sqlite3* handle) : path_(std::move(path)), handle_(handle) {}

  std::string path_;
  sqlite3* handle_;
};

// All that is done until commit(), or nothing. Others write neither meanwhile.
class Transaction {
public:
  [[nodiscard]] static Result<Transaction> begin(Database& database);
  Transaction(Transaction&& other) noexcept;
  Transaction& operator=(Transaction&&) = delete;
  ~Transaction();
  [[nodiscard]] Result<> commit();

private:
  explicit Transaction(Database& database) : database_(&database) {}
  Database* database_; // null: it has ended
};

} // namespace fanin::operation
