#include "fanin/settings/reader.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "fanin/base/number.hpp"
#include "fanin/base/units.hpp"

namespace fanin::settings {
namespace {

// Decimal, or hexadecimal as in 0xe000.
std::optional<std::int64_t> signed_number(std::string_view text) {
  const bool negative = text.starts_with('-');
  const auto magnitude = parse_number_or_hexadecimal<std::uint64_t>(text.substr(negative ? 1 : 0));
  if (!magnitude || !std::in_range<std::int64_t>(*magnitude)) return std::nullopt;
  const auto value = static_cast<std::int64_t>(*magnitude);
  return negative ? -value : value;
}

// Levenshtein's distance; two neighbours that have changed places count once.
std::size_t distance(std::string_view a, std::string_view b) {
  std::vector rows(a.size() + 1, std::vector<std::size_t>(b.size() + 1));
  for (std::size_t i = 0; i <= a.size(); ++i) rows[i][0] = i;
  for (std::size_t j = 0; j <= b.size(); ++j) rows[0][j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t change = rows[i - 1][j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      rows[i][j] = std::min({rows[i - 1][j] + 1, rows[i][j - 1] + 1, change});
      const bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (swapped) rows[i][j] = std::min(rows[i][j], rows[i - 2][j - 2] + 1);
    }
  }
  return rows[a.size()][b.size()];
}

constexpr int cpu_max = 4095;

} // namespace

std::string nearest(std::string_view word, const std::vector<std::string>& candidates) {
  std::string best;
  std::size_t best_distance =
      std::max<std::size_t>(1, std::min<std::size_t>(word.size(), 64) / 3) + 1;
  for (const auto& candidate : candidates) {
    const std::size_t d = distance(word.substr(0, 64), candidate);
    if (d < best_distance) {
      best_distance = d;
      best = candidate;
    }
  }
  return best;
}

void Problems::add(const Place& place, std::string_view key, std::string_view reason) {
  if (first) return;
  const Place& named = blame.value_or(place);
  const std::string at = named.file.empty() ? "" : named.text() + ": ";
  first = Error{ErrorKind::usage, key.empty() ? fmt::format("{}{}", at, reason)
                                              : fmt::format("{}{}: {}", at, key, reason)};
}

void Problems::add_missing(const Place& place, std::string_view key, std::string_view reason) {
  if (!first) first_is_of_missing_key = true;
  add(place, key, reason);
}

void Problems::add_unknown(const Place& place, std::string_view key, std::string_view reason) {
  if (std::exchange(first_is_of_missing_key, false)) first.reset();
  add(place, key, reason);
}

bool TableReader::is_known(std::string_view key) const {
  return std::ranges::find(known_, key) != known_.end();
}

void TableReader::know(std::span<const std::string_view> keys) {
  for (const std::string_view key : keys) {
    if (!is_known(key)) known_.emplace_back(key);
  }
}

const Value* TableReader::find(std::string_view key) {
  know({&key, 1});
  return table_ == nullptr ? nullptr : table_->find(key);
}

Place TableReader::place_of(std::string_view key) const {
  if (table_ == nullptr) return {};
  const Value* value = table_->find(key);
  return value == nullptr ? table_->place : value->place;
}

std::string TableReader::path(std::string_view key) const {
  return key_.empty() ? std::string(key) : fmt::format("{}.{}", key_, key);
}

std::string TableReader::where(std::string_view key) const {
  const Place place = place_of(key);
  return place.file.empty() ? path(key) : fmt::format("{}: {}", place.text(), path(key));
}

void TableReader::reject(std::string_view key, std::string_view reason) {
  problems_.add(place_of(key), path(key), reason);
}

void TableReader::reject_missing(std::string_view key, std::string_view reason) {
  problems_.add_missing(place_of(key), path(key), reason);
  if (table_ == nullptr) return;
  for (const Entry& entry : table_->entries) {
    if (!is_known(entry.key) && !nearest(entry.key, {std::string(key)}).empty())
      reject_unknown(entry, key);
  }
}

const std::string* TableReader::plain(std::string_view key, std::string_view wanted) {
  const Value* value = find(key);
  if (value == nullptr) return nullptr;
  using Kind = Value::Kind;
  if (value->kind == Kind::list || value->kind == Kind::table || value->kind == Kind::date) {
    reject(key, fmt::format("is {}; {} is wanted", name(value->kind), wanted));
    return nullptr;
  }
  return is_clean(key, value->text) ? &value->text : nullptr;
}

// A text may become the name of a file or of a host, which the system reads up to the first NUL.
bool TableReader::is_clean(std::string_view key, std::string_view text) {
  if (text.find('\0') == std::string_view::npos) return true;
  reject(key, "holds a NUL character (\\u0000), which no name can have: leave it out");
  return false;
}

template <class T, class Parse>
T TableReader::parsed(std::string_view key, T fallback, std::string_view wanted, Parse parse) {
  const std::string* text = plain(key, wanted);
  if (text == nullptr) return fallback;
  const auto value = parse(*text);
  if (value) return *value;
  reject(key, value.error().text);
  return fallback;
}

std::string TableReader::text(std::string_view key, std::string fallback) {
  const std::string* text = plain(key, "a text");
  return text == nullptr ? fallback : *text;
}

std::uint64_t TableReader::size(std::string_view key, std::uint64_t fallback) {
  return parsed(key, fallback, "a size as in \"64KiB\"", parse_size);
}

double TableReader::rate_hz(std::string_view key, double fallback) {
  return parsed(key, fallback, "a rate as in \"20kHz\"", parse_rate_hz);
}

double TableReader::bandwidth(std::string_view key, double fallback) {
  return parsed(key, fallback, "a bandwidth as in \"10Gb/s\"", parse_bandwidth);
}

Duration TableReader::duration(std::string_view key, Duration fallback) {
  return parsed(key, fallback, "a time as in \"50ms\"", parse_duration);
}

std::uint64_t TableReader::integer(std::string_view key, std::uint64_t fallback, std::uint64_t min,
                                   std::uint64_t max) {
  return static_cast<std::uint64_t>(signed_integer(key, static_cast<std::int64_t>(fallback),
                                                   static_cast<std::int64_t>(min),
                                                   static_cast<std::int64_t>(max)));
}

std::int64_t TableReader::signed_integer(std::string_view key, std::int64_t fallback,
                                         std::int64_t min, std::int64_t max) {
  const std::string* text = plain(key, "a whole number");
  if (text == nullptr) return fallback;
  const auto value = signed_number(*text);
  if (!value || *value < min || *value > max) {
    const bool quoted = !value && find(key)->kind == Value::Kind::text;
    reject(key, fmt::format("{0}{1}{0} is not a whole number from {2} to {3}", quoted ? "\"" : "",
                            *text, min, max));
    return fallback;
  }
  return *value;
}

bool TableReader::boolean(std::string_view key, bool fallback) {
  const std::string* text = plain(key, "true or false");
  if (text == nullptr) return fallback;
  if (*text != "true" && *text != "false") {
    reject(key, fmt::format("\"{}\" is neither true nor false", *text));
    return fallback;
  }
  return *text == "true";
}

std::size_t TableReader::choice(std::string_view key, std::initializer_list<std::string_view> names,
                                std::size_t fallback) {
  const std::string* text = plain(key, "a text");
  if (text == nullptr) return fallback;
  const auto found = std::ranges::find(names, *text);
  if (found == names.end()) {
    reject(key, fmt::format("\"{}\" is none of \"{}\"", *text, fmt::join(names, "\", \"")));
    return fallback;
  }
  return static_cast<std::size_t>(found - names.begin());
}

std::optional<net::Url> TableReader::url(std::string_view key) {
  const std::string* text = plain(key, "an address as in \"tcp://127.0.0.1:7000\"");
  if (text == nullptr) return std::nullopt;
  auto url = net::Url::parse(*text);
  if (url) return *url;
  reject(key, url.error().text);
  return std::nullopt;
}

std::vector<net::Url> TableReader::urls(std::string_view key) {
  std::vector<net::Url> urls;
  for (const std::string& text : texts(key)) {
    auto url = net::Url::parse(text);
    if (!url) {
      reject(key, url.error().text);
      return {};
    }
    urls.push_back(*url);
  }
  const Value* const value = find(key);
  if (value != nullptr && value->kind == Value::Kind::list && value->items.empty())
    reject(key, "is an empty list: write at least one, or leave the key out");
  return urls;
}

bool TableReader::add_cpus(std::string_view key, std::string_view text, std::vector<int>& cpus) {
  while (true) {
    const auto comma = text.find(',');
    const std::string_view range = text.substr(0, comma);
    const auto dash = range.find('-');
    const auto first = parse_number<int>(range.substr(0, dash));
    const auto last =
        dash == std::string_view::npos ? first : parse_number<int>(range.substr(dash + 1));
    if (!first || !last || *first < 0 || *last < *first || *last > cpu_max) {
      reject(key, fmt::format("\"{}\" names no CPUs; write 3, \"0-3,8\" or [0, 1]", text));
      return false;
    }
    for (int cpu = *first; cpu <= *last; ++cpu) cpus.push_back(cpu);
    if (comma == std::string_view::npos) return true;
    text.remove_prefix(comma + 1);
  }
}

std::vector<int> TableReader::cpus(std::string_view key) {
  std::vector<int> cpus;
  const Value* value = find(key);
  if (value == nullptr) return cpus;
  if (value->kind == Value::Kind::list) {
    for (const Value& item : value->items) {
      if (!add_cpus(key, item.text, cpus)) return {};
    }
  } else if (const std::string* text = plain(key, "a CPU number")) {
    if (!add_cpus(key, *text, cpus)) return {};
  }
  std::ranges::sort(cpus);
  const auto repeated = std::ranges::unique(cpus);
  cpus.erase(repeated.begin(), repeated.end());
  return cpus;
}

std::vector<std::string> TableReader::texts(std::string_view key) {
  return entries(key, "a list of texts", false);
}

std::vector<std::string> TableReader::words(std::string_view key) {
  return entries(key, "a list of numbers or texts", true);
}

std::vector<std::string> TableReader::entries(std::string_view key, std::string_view wanted,
                                              bool numbers) {
  const Value* value = find(key);
  if (value == nullptr) return {};
  if (value->kind != Value::Kind::list) {
    const std::string* text = plain(key, wanted);
    return text == nullptr ? std::vector<std::string>{} : std::vector{*text};
  }
  std::vector<std::string> entries;
  for (const Value& item : value->items) {
    const bool nested = item.kind == Value::Kind::table || item.kind == Value::Kind::list;
    if (nested || (!numbers && item.kind != Value::Kind::text)) {
      reject(key, fmt::format("holds {}; {} is wanted", name(item.kind), wanted));
      return {};
    }
    if (!is_clean(key, item.text)) return {};
    entries.push_back(item.text);
  }
  return entries;
}

TableReader TableReader::table(std::string_view key) {
  const Value* value = find(key);
  if (value != nullptr && value->kind != Value::Kind::table) {
    const bool tables = value->kind == Value::Kind::list && !value->items.empty() &&
                        value->items.front().kind == Value::Kind::table;
    reject(key,
           tables ? fmt::format("there can be only one: write [{0}], not [[{0}]]", path(key))
                  : fmt::format("is {}; a table is wanted, as [{}]", name(value->kind), path(key)));
    value = nullptr;
  }
  return {value, path(key), problems_};
}

std::vector<TableReader> TableReader::tables(std::string_view key) {
  std::vector<TableReader> readers;
  const Value* value = find(key);
  if (value == nullptr) return readers;
  if (value->kind == Value::Kind::table) {
    readers.emplace_back(value, path(key), problems_);
    return readers;
  }
  if (value->kind != Value::Kind::list) {
    reject(key, fmt::format("is {}; write it as [[{}]]", name(value->kind), path(key)));
    return readers;
  }
  for (std::size_t i = 0; i < value->items.size(); ++i) {
    const Value& item = value->items[i];
    if (item.kind != Value::Kind::table) {
      reject(key, fmt::format("holds {}; write it as [[{}]]", name(item.kind), path(key)));
      return {};
    }
    readers.emplace_back(&item, fmt::format("{}.{}", path(key), i), problems_);
  }
  return readers;
}

void TableReader::finish() {
  if (table_ == nullptr) return;
  // A misspelled key may be why others are unknown.
  for (const bool misspelled : {true, false}) {
    for (const Entry& entry : table_->entries) {
      if (is_known(entry.key)) continue;
      const std::string meant = nearest(entry.key, known_);
      if (meant.empty() != misspelled) reject_unknown(entry, meant);
    }
  }
}

void TableReader::reject_unknown(const Entry& entry, std::string_view meant) {
  auto known = known_;
  std::ranges::sort(known);
  // Where an override has named the type of the table, keys of another type are its fault.
  const bool of_type = place().is_override() && !entry.value.place.is_override();
  problems_.add_unknown(of_type ? place() : entry.value.place, path(entry.key),
                        meant.empty()
                            ? fmt::format("unknown key; known here: {}", fmt::join(known, ", "))
                            : fmt::format("unknown key; did you mean {}?", meant));
}

} // namespace fanin::settings
