#include "fanin/base/json.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>

#include <fmt/format.h>

namespace fanin::json {
namespace {

constexpr int depth_max = 64;

void write_text(std::string& out, std::string_view text) {
  out += '"';
  for (const char c : text) {
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
  out.append(static_cast<std::size_t>(indent * level), ' ');
}

class Parser {
public:
  explicit Parser(std::string_view text) : text_(text) {}

  Result<Value> whole() {
    auto value = parse(0);
    skip_space();
    if (value && at_ != text_.size()) return wrong("something follows the value");
    return value;
  }

private:
  std::unexpected<Error> wrong(std::string_view what) const {
    return fail(ErrorKind::malformed, fmt::format("not valid JSON at offset {}: {}", at_, what));
  }
  void skip_space() {
    while (at_ < text_.size() && std::string_view{" \t\r\n"}.contains(text_[at_])) ++at_;
  }
  bool take(char c) {
    skip_space();
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  bool take_word(std::string_view word) {
    if (!text_.substr(at_).starts_with(word)) return false;
    at_ += word.size();
    return true;
  }

  Result<Value> parse(int depth) {
    if (depth > depth_max) return wrong("nested too deeply");
    skip_space();
    if (at_ >= text_.size()) return wrong("ends too early");
    switch (text_[at_]) {
    case '{': return parse_object(depth);
    case '[': return parse_list(depth);
    case '"': {
      auto text = parse_text();
      if (!text) return std::unexpected(text.error());
      return Value(std::move(*text));
    }
    default: break;
    }
    if (take_word("true")) return Value(true);
    if (take_word("false")) return Value(false);
    if (take_word("null")) return Value();
    return parse_number();
  }

  Result<Value> parse_object(int depth) {
    ++at_;
    Object object;
    if (take('}')) return Value(std::move(object));
    do {
      skip_space();
      if (at_ >= text_.size() || text_[at_] != '"') return wrong("a member's name is missing");
      auto key = parse_text();
      if (!key) return std::unexpected(key.error());
      if (!take(':')) return wrong("a colon is missing");
      auto value = parse(depth + 1);
      if (!value) return value;
      object.emplace_back(std::move(*key), std::move(*value));
    } while (take(','));
    if (!take('}')) return wrong("an object is not closed");
    return Value(std::move(object));
  }

  Result<Value> parse_list(int depth) {
    ++at_;
    List list;
    if (take(']')) return Value(std::move(list));
    do {
      auto value = parse(depth + 1);
      if (!value) return value;
      list.push_back(std::move(*value));
    } while (take(','));
    if (!take(']')) return wrong("a list is not closed");
    return Value(std::move(list));
  }

  Result<Value> parse_number() {
    const char* const first = text_.data() + at_;
    const char* const end = text_.data() + text_.size();
    const std::string_view rest = text_.substr(at_);
    const bool whole =
        rest.find_first_not_of("+-0123456789") == rest.find_first_not_of("+-0123456789.eE");
    if (whole) {
      std::int64_t integer = 0;
      if (const auto [stop, error] = std::from_chars(first, end, integer); error == std::errc{}) {
        at_ += static_cast<std::size_t>(stop - first);
        return Value(integer);
      }
      std::uint64_t natural = 0;
      if (const auto [stop, error] = std::from_chars(first, end, natural); error == std::errc{}) {
        at_ += static_cast<std::size_t>(stop - first);
        return Value(natural);
      }
    }
    double real = 0;
    const auto [stop, error] = std::from_chars(first, end, real);
    if (error != std::errc{} || !std::isfinite(real)) return wrong("not a value");
    at_ += static_cast<std::size_t>(stop - first);
    return Value(real);
  }

  std::optional<unsigned> hex4() {
    unsigned code = 0;
    if (text_.size() - at_ < 4) return std::nullopt;
    const char* const first = text_.data() + at_;
    const auto [stop, error] = std::from_chars(first, first + 4, code, 16);
    if (error != std::errc{} || stop != first + 4) return std::nullopt;
    at_ += 4;
    return code;
  }

  static void append_utf8(std::string& out, unsigned code) {
    const auto byte = [&out](unsigned value) { out += static_cast<char>(value); };
    if (code < 0x80) {
      byte(code);
    } else if (code < 0x800) {
      byte(0xc0 | (code >> 6));
      byte(0x80 | (code & 0x3f));
    } else if (code < 0x10000) {
      byte(0xe0 | (code >> 12));
      byte(0x80 | ((code >> 6) & 0x3f));
      byte(0x80 | (code & 0x3f));
    } else {
      byte(0xf0 | (code >> 18));
      byte(0x80 | ((code >> 12) & 0x3f));
      byte(0x80 | ((code >> 6) & 0x3f));
      byte(0x80 | (code & 0x3f));
    }
  }

  bool parse_unicode(std::string& out) {
    auto code = hex4();
    if (!code) return false;
    if (*code >= 0xd800 && *code < 0xdc00) { // the first of a surrogate pair
      if (!take_word("\\u")) return false;
      const auto low = hex4();
      if (!low || *low < 0xdc00 || *low > 0xdfff) return false;
      code = 0x10000 + ((*code - 0xd800) << 10) + (*low - 0xdc00);
    }
    append_utf8(out, *code);
    return true;
  }

  Result<std::string> parse_text() {
    ++at_;
    std::string out;
    while (at_ < text_.size() && text_[at_] != '"') {
      const char c = text_[at_++];
      if (c != '\\') {
        out += c;
        continue;
      }
      const char escape = at_ < text_.size() ? text_[at_++] : '\0';
      static constexpr std::string_view names = "\"\\/bfnrt";
      static constexpr std::string_view meanings = "\"\\/\b\f\n\r\t";
      const auto known = names.find(escape);
      if (known != std::string_view::npos) {
        out += meanings[known];
      } else if (escape != 'u' || !parse_unicode(out)) {
        return wrong("an unknown escape");
      }
    }
    if (at_ >= text_.size()) return wrong("a text is not closed");
    ++at_;
    return out;
  }

  std::string_view text_;
  std::size_t at_ = 0;
};

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

Result<Value> Value::parse(std::string_view text) { return Parser(text).whole(); }

} // namespace fanin::json
