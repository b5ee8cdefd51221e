// Takes a table of the configuration apart into typed values. The first thing wrong is kept, what
// follows gives fallbacks, so that a section is read in a row and asked once at the end. Keys that
// nobody asked for are unknown, and the error names the nearest known one.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fanin/base/clock.hpp"
#include "fanin/base/result.hpp"
#include "fanin/config/tree.hpp"
#include "fanin/net/url.hpp"

namespace fanin::config {

// The first error of a whole configuration.
struct Problems {
  std::optional<Error> first;
  // "file:line: key: reason", of kind usage.
  void add(const Place& place, std::string_view key, std::string_view reason);
};

class TableReader {
public:
  // `table` may be null: an absent section, all of whose keys are absent. `key` is its dotted name.
  // Both `table` and `problems` must outlive the reader.
  TableReader(const Value* table, std::string key, Problems& problems)
      : table_(table), key_(std::move(key)), problems_(problems) {}

  [[nodiscard]] bool has(std::string_view key) { return find(key) != nullptr; }
  [[nodiscard]] const Value* find(std::string_view key); // marks the key as known
  [[nodiscard]] Place place_of(std::string_view key) const;
  [[nodiscard]] std::string where(std::string_view key) const; // file, line and dotted key
  [[nodiscard]] Place place() const { return table_ == nullptr ? Place{} : table_->place; }
  [[nodiscard]] const Value* value() const { return table_; }
  [[nodiscard]] const std::string& key() const { return key_; } // dotted, as "readout.0"
  [[nodiscard]] std::string path(std::string_view key) const; // of one of its keys

  [[nodiscard]] std::string text(std::string_view key, std::string fallback);
  [[nodiscard]] std::uint64_t size(std::string_view key, std::uint64_t fallback); // bytes
  [[nodiscard]] double rate_hz(std::string_view key, double fallback);
  [[nodiscard]] double bandwidth(std::string_view key, double fallback); // bytes per second
  [[nodiscard]] Duration duration(std::string_view key, Duration fallback);
  [[nodiscard]] std::uint64_t integer(std::string_view key, std::uint64_t fallback,
                                      std::uint64_t min = 0, std::uint64_t max = (1ULL << 63) - 1);
  // As text also hexadecimal: "0xe000".
  [[nodiscard]] std::int64_t signed_integer(std::string_view key, std::int64_t fallback,
                                            std::int64_t min, std::int64_t max);
  [[nodiscard]] bool boolean(std::string_view key, bool fallback);
  // Which of `names` was written, by index; `fallback` if the key is absent.
  [[nodiscard]] std::size_t choice(std::string_view key,
                                   std::initializer_list<std::string_view> names,
                                   std::size_t fallback = 0);
  [[nodiscard]] std::optional<net::Url> url(std::string_view key);
  [[nodiscard]] std::vector<net::Url> urls(std::string_view key); // a list, or one alone
  // CPU numbers: 3, "0-3,8" or [0, 1, 2].
  [[nodiscard]] std::vector<int> cpus(std::string_view key);
  [[nodiscard]] std::vector<std::string> texts(std::string_view key); // a list, or one alone

  [[nodiscard]] TableReader table(std::string_view key);
  // [[key]], or one [key] alone.
  [[nodiscard]] std::vector<TableReader> tables(std::string_view key);

  void reject(std::string_view key, std::string_view reason);
  void finish(); // everything that is left is unknown

private:
  // The text of a value that is not a table or a list; null if absent or something else.
  [[nodiscard]] const std::string* plain(std::string_view key, std::string_view wanted);
  template <class T, class Parse>
  [[nodiscard]] T parsed(std::string_view key, T fallback, std::string_view wanted, Parse parse);
  bool add_cpus(std::string_view key, std::string_view text, std::vector<int>& cpus);

  const Value* table_;
  std::string key_;
  Problems& problems_;
  std::vector<std::string> known_;
};

// The candidate that `word` was probably meant to be; empty if none is near.
[[nodiscard]] std::string nearest(std::string_view word,
                                  const std::vector<std::string>& candidates);

} // namespace fanin::config
