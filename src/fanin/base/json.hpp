/// \file
/// The JSON that fanin writes and reads: results for scripts, reports between its processes, the
/// manifest of a run. Whole numbers are exact over the range of 64 bits. Objects keep the order of
/// their keys.
#pragma once

#include <concepts>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "fanin/base/export.hpp"
#include "fanin/base/result.hpp"

namespace fanin::json {

class Value;
using List = std::vector<Value>;
using Object = std::vector<std::pair<std::string, Value>>;

class FANIN_INTERNAL_API Value {
public:
  Value() = default; ///< null
  Value(bool value) : data_(value) {}
  Value(std::integral auto value) : data_(number(value)) {}
  Value(double value) : data_(value) {}
  Value(std::string value) : data_(std::move(value)) {}
  Value(std::string_view value) : data_(std::string(value)) {}
  Value(const char* value) : data_(std::string(value)) {}
  Value(List value) : data_(std::move(value)) {}
  Value(Object value) : data_(std::move(value)) {}

  /// The member of that name. It is added if it does not exist; a null value becomes an object
  /// first.
  Value& operator[](std::string_view key);
  void append(Value value); ///< appends to a list; a null value becomes a list first

  /// Readers return the fallback if the value does not exist or has another type.
  [[nodiscard]] const Value* find(std::string_view key) const; ///< null: not there
  [[nodiscard]] const Value& at(std::string_view key) const; ///< the null value: not there
  [[nodiscard]] bool is_null() const { return data_.index() == 0; }
  [[nodiscard]] bool is_boolean() const { return std::holds_alternative<bool>(data_); }
  [[nodiscard]] bool is_natural() const; ///< true for a whole number of at least 0
  [[nodiscard]] bool is_text() const { return std::holds_alternative<std::string>(data_); }
  [[nodiscard]] bool is_object() const { return std::holds_alternative<Object>(data_); }
  [[nodiscard]] bool is_list() const { return std::holds_alternative<List>(data_); }
  [[nodiscard]] bool boolean(bool fallback = false) const;
  [[nodiscard]] std::uint64_t natural(std::uint64_t fallback = 0) const; ///< negative: the fallback
  [[nodiscard]] std::optional<std::int64_t>
  integer() const; ///< none: not a number from -2^63 to 2^63 - 1
  [[nodiscard]] double real(double fallback = 0) const;
  [[nodiscard]] std::string text(std::string_view fallback = {}) const;
  [[nodiscard]] const List& list() const; ///< empty if it is none
  [[nodiscard]] const Object& object() const; ///< likewise

  /// The text on one line, or with `indent` spaces for each level. Numbers that JSON cannot
  /// represent become null; bytes of text that are not UTF-8 become U+FFFD. Characters that a
  /// terminal would obey (base/printable.hpp) are escaped.
  [[nodiscard]] std::string dump(int indent = -1) const;
  /// Errors: malformed, also for text that is nested too deeply.
  [[nodiscard]] static Result<Value> parse(std::string_view text);

private:
  using Data = std::variant<std::monostate, bool, std::int64_t, std::uint64_t, double, std::string,
                            List, Object>;
  static Data number(std::signed_integral auto value) { return std::int64_t{value}; }
  static Data number(std::unsigned_integral auto value) { return std::uint64_t{value}; }
  struct Writer;

  Data data_;
};

} // namespace fanin::json
