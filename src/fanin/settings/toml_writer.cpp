// The text of a configuration: the values as they were understood, after the overrides.
#include <algorithm>

#include <fmt/format.h>

#include "fanin/settings/tree.hpp"

namespace fanin::settings {

std::string quoted(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) {
      out += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
    } else {
      out += c;
    }
  }
  return out + '"';
}

namespace {

std::string key_text(std::string_view key) {
  const bool bare = !key.empty() && std::ranges::all_of(key, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '-';
  });
  return bare ? std::string(key) : quoted(key);
}

bool is_tables(const Value& value) { // [[key]]
  return value.kind == Value::Kind::list && !value.items.empty() &&
         std::ranges::all_of(value.items,
                             [](const Value& item) { return item.kind == Value::Kind::table; });
}

std::string inline_text(const Value& value) {
  std::string text;
  const auto separate = [&] { return text.empty() ? "" : ", "; };
  switch (value.kind) {
  case Value::Kind::text: return quoted(value.text);
  case Value::Kind::list:
    for (const Value& item : value.items) text += separate() + inline_text(item);
    return "[" + text + "]";
  case Value::Kind::table:
    for (const Entry& entry : value.entries)
      text += separate() + key_text(entry.key) + " = " + inline_text(entry.value);
    return "{" + text + "}";
  case Value::Kind::real: // 1.0 was written down as 1
    return value.text + (value.text.find_first_of(".en") == std::string::npos ? ".0" : "");
  default: return value.text;
  }
}

// First what has no section of its own: all that follows a section's head belongs to it.
void write_table(const Value& table, const std::string& path, std::string& text) {
  for (const auto& [key, value] : table.entries) {
    if (value.kind == Value::Kind::table || is_tables(value)) continue;
    text += fmt::format("{} = {}\n", key_text(key), inline_text(value));
  }
  for (const auto& [key, value] : table.entries) {
    const std::string name = path.empty() ? key_text(key) : path + "." + key_text(key);
    const auto section = [&](const Value& one, const std::string& head) {
      text += fmt::format("{}{}\n", text.empty() ? "" : "\n", head);
      write_table(one, name, text);
    };
    if (value.kind == Value::Kind::table) section(value, "[" + name + "]");
    if (!is_tables(value)) continue;
    for (const Value& item : value.items) section(item, "[[" + name + "]]");
  }
}

} // namespace

std::string to_toml(const Value& root) {
  std::string text;
  write_table(root, "", text);
  return text;
}

} // namespace fanin::settings
