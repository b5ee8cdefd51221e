// The only file that knows toml++.
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>

#include <fmt/format.h>

#include "fanin/settings/tree.hpp"

#if defined(__GNUC__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wshadow"
#pragma GCC diagnostic ignored "-Wconversion"
#endif
// Its assertions would end the process on some invalid texts, of which it then says what is wrong.
#define TOML_ASSERT(condition) static_cast<void>(0)
#include <toml++/toml.h>
#if defined(__GNUC__)
#pragma GCC diagnostic pop
#endif

namespace fanin::settings {
namespace {

constexpr std::uintmax_t file_size_max = 16U << 20;

Value convert(const toml::node& node, const std::string& file);

void convert_table(const toml::table& table, const std::string& file, Value& value) {
  value.kind = Value::Kind::table;
  for (const auto& [key, child] : table) {
    value.entries.push_back({std::string(key.str()), convert(child, file)});
    // An array of tables begins at its first table, a table made by a dotted key at its first key.
    Value& converted = value.entries.back().value;
    if (converted.place.line == 0) converted.place.line = key.source().begin.line;
  }
}

std::string real_text(double number) {
  return std::isfinite(number) ? fmt::format("{}", number) : std::isnan(number) ? "nan" : "inf";
}

Value convert(const toml::node& node, const std::string& file) {
  Value value;
  value.place = {file, node.source().begin.line};
  if (const auto* table = node.as_table()) {
    convert_table(*table, file, value);
  } else if (const auto* list = node.as_array()) {
    value.kind = Value::Kind::list;
    for (const auto& item : *list) value.items.push_back(convert(item, file));
  } else if (const auto* text = node.as_string()) {
    value.kind = Value::Kind::text;
    value.text = text->get();
  } else if (const auto* integer = node.as_integer()) {
    value.kind = Value::Kind::integer;
    value.text = fmt::format("{}", integer->get());
  } else if (const auto* real = node.as_floating_point()) {
    value.kind = Value::Kind::real;
    value.text = real_text(real->get());
  } else if (const auto* boolean = node.as_boolean()) {
    value.kind = Value::Kind::boolean;
    value.text = boolean->get() ? "true" : "false";
  } else {
    value.kind = Value::Kind::date;
  }
  return value;
}

} // namespace

Result<Value> parse_toml(std::string_view text, const std::string& file) {
  try {
    const toml::table table = toml::parse(text, file);
    Value root;
    root.place = {file, 1};
    convert_table(table, file, root);
    return root;
  } catch (const toml::parse_error& error) {
    return fail(ErrorKind::usage, fmt::format("{}:{}: not valid TOML: {}", file,
                                              error.source().begin.line, error.description()));
  }
}

Result<std::string> read_text(const std::string& path) {
  if (std::filesystem::is_directory(path)) {
    return fail(ErrorKind::usage, fmt::format("{}: is a folder, not a configuration", path));
  }
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    return fail_errno(ErrorKind::not_found, fmt::format("{}: cannot be opened", path), errno);
  }
  std::string text(file_size_max + 1, '\0'); // more is not read: a device may have no end
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(file.gcount()));
  if (file.bad() || (text.empty() && !file.eof())) {
    return fail(ErrorKind::refused, fmt::format("{}: cannot be read; is it a file?", path));
  }
  if (text.size() > file_size_max) {
    return fail(
        ErrorKind::usage,
        fmt::format("{}: is too large for a configuration, at most {} bytes", path, file_size_max));
  }
  return text;
}

Value parse_toml_value(std::string_view text, const Place& place) {
  Value as_text;
  as_text.kind = Value::Kind::text;
  as_text.text = text;
  as_text.place = place;
  if (text.find_first_of("\n\r#") != std::string_view::npos) return as_text;
  try {
    const toml::table table = toml::parse(fmt::format("v = {}", text));
    const toml::node* node = table.get("v");
    if (table.size() != 1 || node == nullptr || node->is_date() || node->is_time() ||
        node->is_date_time()) {
      return as_text;
    }
    Value value = convert(*node, place.file);
    // The places of what is inside count from the override, not from a line.
    const auto set_place = [&place](auto& self, Value& part) -> void {
      part.place = place;
      for (auto& item : part.items) self(self, item);
      for (auto& entry : part.entries) self(self, entry.value);
    };
    set_place(set_place, value);
    return value;
  } catch (const toml::parse_error&) {
    return as_text;
  }
}

} // namespace fanin::settings
