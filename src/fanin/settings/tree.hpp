/// \file
/// A configuration as it was written: values with their places, without their meaning. It is read
/// from TOML text and changed by key=value overrides.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "fanin/base/export.hpp"
#include "fanin/base/result.hpp"

namespace fanin::settings {

/// Most parts of a dotted key. Readers of a key call themselves once for each part.
inline constexpr int key_parts_max = 16;

/// Where a value was written, for messages: "run.toml:12" or "--set:1" (the first override).
struct FANIN_API Place {
  std::string file;
  std::uint32_t line = 0;
  [[nodiscard]] std::string text() const;
  [[nodiscard]] bool is_override() const { return file == "--set"; }
};

/// One key of a source or application that its type understands.
struct Setting {
  std::string value; ///< as it was written, without quotes; of a list its entries, with commas
  Place place;
};

struct Entry;

struct Value {
  enum class Kind : std::uint8_t { text, integer, real, boolean, date, list, table };
  Kind kind = Kind::table;
  std::string text; ///< strings without quotes, numbers in decimal, true or false
  Place place;
  std::vector<Value> items; ///< of a list
  std::vector<Entry> entries; ///< of a table

  [[nodiscard]] FANIN_API const Value* find(std::string_view key) const; ///< in a table; null if it
                                                                         ///< does not exist
  [[nodiscard]] FANIN_API Value* find(std::string_view key);
};

struct Entry {
  std::string key;
  Value value;
};

/// What a dotted key leads to, with the index in a list: "readout.0.name". Null: it is not there.
[[nodiscard]] const Value* find_path(const Value& root, std::string_view key);
/// Where a dotted key was written; of one that is not there, the table that it would be in.
[[nodiscard]] Place place_of(const Value& root, std::string_view key);
/// The first value that an override has given: this one, or one within it. Null: there is none.
[[nodiscard]] const Value* find_override(const Value& value);

/// A message of one line, whatever it quotes: white space becomes one space, other control
/// characters a question mark.
[[nodiscard]] FANIN_INTERNAL_API std::string one_line(std::string_view text);

/// For messages: "a text", "a whole number", ...
[[nodiscard]] std::string_view name(Value::Kind kind);

/// The same values as a configuration file, without its comments.
[[nodiscard]] FANIN_INTERNAL_API std::string to_toml(const Value& root);

/// A text as it is written there, with quotes.
[[nodiscard]] FANIN_INTERNAL_API std::string quoted(std::string_view text);

/// Errors: usage, as "file:line: reason". `file` is only for messages.
[[nodiscard]] FANIN_INTERNAL_API Result<Value> parse_toml(std::string_view text,
                                                          const std::string& file);
/// The text of a configuration file. Errors: not_found, refused, usage (a folder, too large).
[[nodiscard]] FANIN_INTERNAL_API Result<std::string> read_text(const std::string& path);
/// One value, as on the right of an equals sign. What is not TOML is a text: 5s means "5s".
[[nodiscard]] Value parse_toml_value(std::string_view text, const Place& place);

/// Applies an override such as "readout.0.name=left": a dotted key, with the index in a list or *
/// for all its entries. "run.without+=adc3" adds an entry to a list, or those of another list.
/// `ordinal` counts the overrides, from 1. Errors: usage.
[[nodiscard]] FANIN_INTERNAL_API Result<> override_value(Value& root, std::string_view assignment,
                                                         std::uint32_t ordinal);

} // namespace fanin::settings
