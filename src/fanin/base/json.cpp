#include "fanin/base/json.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "fanin/base/printable.hpp"
#include "fanin/base/try.hpp"

namespace fanin::json {
namespace {

constexpr int depth_max = 64;

Result<Value> convert(const nlohmann::ordered_json& parsed, int depth) {
  if (depth > depth_max)
    return fail(ErrorKind::malformed, "not valid JSON here: nested too deeply");
  if (parsed.is_object()) {
    Object object;
    for (const auto& [key, member] : parsed.items()) {
      auto value = FANIN_TRY(convert(member, depth + 1));
      object.emplace_back(key, std::move(value));
    }
    return Value(std::move(object));
  }
  if (parsed.is_array()) {
    List list;
    for (const auto& item : parsed) {
      auto value = FANIN_TRY(convert(item, depth + 1));
      list.push_back(std::move(value));
    }
    return Value(std::move(list));
  }
  if (parsed.is_string()) return Value(parsed.get<std::string>());
  if (parsed.is_boolean()) return Value(parsed.get<bool>());
  if (parsed.is_number_unsigned()) return Value(parsed.get<std::uint64_t>());
  if (parsed.is_number_integer()) return Value(parsed.get<std::int64_t>());
  if (parsed.is_number_float()) return Value(parsed.get<double>());
  return Value();
}

} // namespace

Value& Value::operator[](std::string_view key) {
  if (is_null()) data_ = Object{};
  auto& object = std::get<Object>(data_);
  const auto found = std::ranges::find(object, key, &Object::value_type::first);
  if (found != object.end()) return found->second;
  return object.emplace_back(std::string(key), Value{}).second;
}

void Value::append(Value value) {
  if (is_null()) data_ = List{};
  std::get<List>(data_).push_back(std::move(value));
}

const Value* Value::find(std::string_view key) const {
  const auto found = std::ranges::find(object(), key, &Object::value_type::first);
  return found == object().end() ? nullptr : &found->second;
}

const Value& Value::at(std::string_view key) const {
  static const Value null;
  const Value* found = find(key);
  return found == nullptr ? null : *found;
}

bool Value::boolean(bool fallback) const {
  const bool* value = std::get_if<bool>(&data_);
  return value == nullptr ? fallback : *value;
}

bool Value::is_natural() const {
  const auto* value = std::get_if<std::int64_t>(&data_);
  return std::holds_alternative<std::uint64_t>(data_) || (value != nullptr && *value >= 0);
}

std::uint64_t Value::natural(std::uint64_t fallback) const {
  if (const auto* value = std::get_if<std::uint64_t>(&data_)) return *value;
  if (const auto* value = std::get_if<std::int64_t>(&data_); value != nullptr && *value >= 0) {
    return static_cast<std::uint64_t>(*value);
  }
  return fallback;
}

std::optional<std::int64_t> Value::integer() const {
  if (const auto* value = std::get_if<std::int64_t>(&data_)) return *value;
  const auto* value = std::get_if<std::uint64_t>(&data_);
  if (value == nullptr || !std::in_range<std::int64_t>(*value)) return std::nullopt;
  return static_cast<std::int64_t>(*value);
}

double Value::real(double fallback) const {
  if (const auto* value = std::get_if<double>(&data_)) return *value;
  if (const auto* value = std::get_if<std::int64_t>(&data_)) return static_cast<double>(*value);
  if (const auto* value = std::get_if<std::uint64_t>(&data_)) return static_cast<double>(*value);
  return fallback;
}

std::string Value::text(std::string_view fallback) const {
  const auto* value = std::get_if<std::string>(&data_);
  return value == nullptr ? std::string(fallback) : *value;
}

const List& Value::list() const {
  static const List empty;
  const auto* value = std::get_if<List>(&data_);
  return value == nullptr ? empty : *value;
}

const Object& Value::object() const {
  static const Object empty;
  const auto* value = std::get_if<Object>(&data_);
  return value == nullptr ? empty : *value;
}

// As the library has it, which writes it.
struct Value::Writer {
  static nlohmann::ordered_json convert(const Value& value) {
    return std::visit([](const auto& data) { return of(data); }, value.data_);
  }

  static nlohmann::ordered_json of(std::monostate) { return nullptr; }
  static nlohmann::ordered_json of(const List& list) {
    auto converted = nlohmann::ordered_json::array();
    for (const Value& item : list) converted.push_back(convert(item));
    return converted;
  }
  static nlohmann::ordered_json of(const Object& object) {
    auto converted = nlohmann::ordered_json::object();
    for (const auto& [key, member] : object) converted[key] = convert(member);
    return converted;
  }
  static nlohmann::ordered_json of(const auto& plain) { return plain; }
};

// File names and messages of others may be any bytes: what is not UTF-8 is replaced.
std::string Value::dump(int indent) const {
  return printable_json(Writer::convert(*this).dump(
      indent, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
}

Result<Value> Value::parse(std::string_view text) {
  try {
    return convert(nlohmann::ordered_json::parse(text), 0);
  } catch (const nlohmann::json::parse_error& error) {
    return fail(ErrorKind::malformed, fmt::format("not valid JSON at offset {}", error.byte));
  } catch (const nlohmann::json::exception& error) { // a number out of range
    return fail(ErrorKind::malformed, fmt::format("not valid JSON: {}", error.what()));
  }
}

} // namespace fanin::json
