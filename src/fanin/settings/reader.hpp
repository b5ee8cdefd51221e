/// \file
/// Turns a table of the configuration into typed values. The first error is kept, and later reads
/// return fallbacks; so a section is read without checks, and asked for errors once at the end. A
/// key that no reader asked for is unknown; the error names the nearest known key.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fanin/base/clock.hpp"
#include "fanin/base/export.hpp"
#include "fanin/base/result.hpp"
#include "fanin/net/url.hpp"
#include "fanin/settings/tree.hpp"

namespace fanin::settings {

/// The first error of a whole configuration: "file:line: key: reason", of kind usage.
struct Problems {
  std::optional<Error> first;
  bool first_is_of_missing_key = false;
  std::optional<Place> blame; ///< in place of every other one

  FANIN_API void add(const Place& place, std::string_view key, std::string_view reason);
  FANIN_API void add_missing(const Place& place, std::string_view key, std::string_view reason);
  /// An unknown key may be the one that is missing, misspelled. So it comes before a missing one.
  FANIN_API void add_unknown(const Place& place, std::string_view key, std::string_view reason);
};

class FANIN_API TableReader {
public:
  /// `table` may be null: then the section and all its keys are absent. `key` is its dotted name.
  /// Both `table` and `problems` must outlive the reader.
  TableReader(const Value* table, std::string key, Problems& problems)
      : table_(table), key_(std::move(key)), problems_(problems) {}

  [[nodiscard]] bool has(std::string_view key) { return find(key) != nullptr; }
  [[nodiscard]] const Value* find(std::string_view key); ///< marks the key as known
  [[nodiscard]] Place place_of(std::string_view key) const;
  [[nodiscard]] std::string where(std::string_view key) const; ///< file, line and dotted key
  [[nodiscard]] Place place() const { return table_ == nullptr ? Place{} : table_->place; }
  [[nodiscard]] const Value* value() const { return table_; }
  [[nodiscard]] const std::string& key() const { return key_; } ///< dotted, as "readout.0"
  [[nodiscard]] std::string path(std::string_view key) const; ///< of one of its keys

  [[nodiscard]] std::string text(std::string_view key, std::string fallback);
  [[nodiscard]] std::uint64_t size(std::string_view key, std::uint64_t fallback); ///< bytes
  [[nodiscard]] double rate_hz(std::string_view key, double fallback);
  [[nodiscard]] double bandwidth(std::string_view key, double fallback); ///< bytes per second
  [[nodiscard]] Duration duration(std::string_view key, Duration fallback);
  [[nodiscard]] std::uint64_t integer(std::string_view key, std::uint64_t fallback,
                                      std::uint64_t min = 0, std::uint64_t max = (1ULL << 63) - 1);
  /// A number; as text also hexadecimal: "0xe000".
  [[nodiscard]] std::int64_t signed_integer(std::string_view key, std::int64_t fallback,
                                            std::int64_t min, std::int64_t max);
  [[nodiscard]] bool boolean(std::string_view key, bool fallback);
  /// The index in `names` of the value; `fallback` if the key is absent.
  [[nodiscard]] std::size_t choice(std::string_view key,
                                   std::initializer_list<std::string_view> names,
                                   std::size_t fallback = 0);
  [[nodiscard]] std::optional<net::Url> url(std::string_view key);
  [[nodiscard]] std::vector<net::Url> urls(std::string_view key); ///< a list, or one alone
  /// CPU numbers: 3, "0-3,8" or [0, 1, 2].
  [[nodiscard]] std::vector<int> cpus(std::string_view key);
  [[nodiscard]] std::vector<std::string> texts(std::string_view key); ///< a list, or one alone
  /// A list of numbers or texts, or one alone: as they were written.
  [[nodiscard]] std::vector<std::string> words(std::string_view key);

  [[nodiscard]] TableReader table(std::string_view key);
  /// The tables of [[key]], or of one [key].
  [[nodiscard]] std::vector<TableReader> tables(std::string_view key);

  void reject(std::string_view key, std::string_view reason);
  /// The key is not there. If one that was not read is similar, that one is reported as unknown.
  void reject_missing(std::string_view key, std::string_view reason);
  /// Keys that are read elsewhere: they are known here, too.
  void know(std::span<const std::string_view> keys);
  void finish(); ///< reports the keys that were not read as unknown

private:
  // The text of a value that is neither a table nor a list; null otherwise.
  [[nodiscard]] const std::string* plain(std::string_view key, std::string_view wanted);
  // Of a list, or one alone; `numbers`: not only texts.
  [[nodiscard]] std::vector<std::string> entries(std::string_view key, std::string_view wanted,
                                                 bool numbers);
  [[nodiscard]] bool is_clean(std::string_view key, std::string_view text); // else rejects it
  template <class T, class Parse>
  [[nodiscard]] T parsed(std::string_view key, T fallback, std::string_view wanted, Parse parse);
  bool add_cpus(std::string_view key, std::string_view text, std::vector<int>& cpus);
  [[nodiscard]] bool is_known(std::string_view key) const;
  void reject_unknown(const Entry& entry, std::string_view meant);

  const Value* table_;
  std::string key_;
  Problems& problems_;
  std::vector<std::string> known_;
};

/// The candidate that is most similar to `word`; empty if none is similar.
[[nodiscard]] std::string nearest(std::string_view word,
                                  const std::vector<std::string>& candidates);

} // namespace fanin::settings
