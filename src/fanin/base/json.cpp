#include "fanin/base/json.hpp"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace fanin::json {
namespace {

constexpr int depth_max = 64;

// Bytes of the character that begins `text`; 0: it is not UTF-8.
std::size_t utf8_length(std::string_view text) {
  const auto byte = [&](std::size_t at) {
    return at < text.size() ? static_cast<unsigned char>(text[at]) : 0U;
  };
  const unsigned first = byte(0);
  const std::size_t length = first < 0x80                    ? 1
                             : first >= 0xc2 && first < 0xe0 ? 2
                             : first >= 0xe0 && first < 0xf0 ? 3
                             : first >= 0xf0 && first < 0xf5 ? 4
                                                             : 0;
  for (std::size_t at = 1; at < length; ++at) {
    if ((byte(at) & 0xc0U) != 0x80U) return 0;
  }
  // Overlong forms, surrogates and what is beyond the last character.
  const bool wrong = (first == 0xe0 && byte(1) < 0xa0) || (first == 0xed && byte(1) >= 0xa0) ||
                     (first == 0xf0 && byte(1) < 0x90) || (first == 0xf4 && byte(1) >= 0x90);
  return wrong ? 0 : length;
}

// File names and messages of others may be any bytes; what is not UTF-8 becomes U+FFFD.
void write_text(std::string& out, std::string_view text) {
  out += '"';
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t length = utf8_length(text.substr(at));
    const char c = text[at];
    if (length != 1) {
      out += length == 0 ? std::string_view{"\xef\xbf\xbd"} : text.substr(at, length);
      at += std::max<std::size_t>(length, 1);
      continue;
    }
    ++at;
    switch (c) {
    case '"': out += "\\\""; break;
    case '\\': out += "\\\\"; break;
    case '\n': out += "\\n"; break;
    case '\r': out += "\\r"; break;
    case '\t': out += "\\t"; break;
    default:
      if (static_cast<unsigned char>(c) < 0x20) {
        out += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
      } else {
        out += c;
      }
    }
  }
  out += '"';
}

void new_line(std::string& out, int indent, int level) {
  if (indent < 0) return;
  out += '\n';
  out.append(static_cast<std::size_t>(indent) * static_cast<std::size_t>(level), ' ');
}

Result<Value> convert(const nlohmann::ordered_json& parsed, int depth) {
  if (depth > depth_max)
    return fail(ErrorKind::malformed, "not valid JSON here: nested too deeply");
  if (parsed.is_object()) {
    Object object;
    for (const auto& [key, member] : parsed.items()) {
      auto value = convert(member, depth + 1);
      if (!value) return value;
      object.emplace_back(key, std::move(*value));
    }
    return Value(std::move(object));
  }
  if (parsed.is_array()) {
    List list;
    for (const auto& item : parsed) {
      auto value = convert(item, depth + 1);
      if (!value) return value;
      list.push_back(std::move(*value));
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

void Value::write(std::string& out, int indent, int level) const {
  if (const auto* boolean = std::get_if<bool>(&data_)) {
    out += *boolean ? "true" : "false";
  } else if (const auto* integer = std::get_if<std::int64_t>(&data_)) {
    out += fmt::format("{}", *integer);
  } else if (const auto* natural = std::get_if<std::uint64_t>(&data_)) {
    out += fmt::format("{}", *natural);
  } else if (const auto* real = std::get_if<double>(&data_)) {
    out += std::isfinite(*real) ? fmt::format("{}", *real) : "null";
  } else if (const auto* text = std::get_if<std::string>(&data_)) {
    write_text(out, *text);
  } else if (const auto* list = std::get_if<List>(&data_)) {
    out += '[';
    for (std::size_t i = 0; i < list->size(); ++i) {
      if (i != 0) out += ',';
      new_line(out, indent, level + 1);
      (*list)[i].write(out, indent, level + 1);
    }
    if (!list->empty()) new_line(out, indent, level);
    out += ']';
  } else if (const auto* object = std::get_if<Object>(&data_)) {
    out += '{';
    for (std::size_t i = 0; i < object->size(); ++i) {
      if (i != 0) out += ',';
      new_line(out, indent, level + 1);
      write_text(out, (*object)[i].first);
      out += indent < 0 ? ":" : ": ";
      (*object)[i].second.write(out, indent, level + 1);
    }
    if (!object->empty()) new_line(out, indent, level);
    out += '}';
  } else {
    out += "null";
  }
}

std::string Value::dump(int indent) const {
  std::string out;
  write(out, indent, 0);
  return out;
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
