#include "fanin/settings/tree.hpp"

#include <algorithm>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "fanin/base/counted.hpp"
#include "fanin/base/number.hpp"
#include "fanin/base/printable.hpp"
#include "fanin/base/try.hpp"

namespace fanin::settings {

std::string one_line(std::string_view text) {
  std::string line;
  for (const char c : text) {
    const bool space = c == '\n' || c == '\r' || c == '\t' || c == ' ';
    if (!space) {
      line += c;
    } else if (!line.empty() && line.back() != ' ') {
      line += ' ';
    }
  }
  return printable(line);
}

std::string Place::text() const { return fmt::format("{}:{}", file, line); }

const Value* Value::find(std::string_view key) const {
  const auto found = std::ranges::find(entries, key, &Entry::key);
  return found == entries.end() ? nullptr : &found->value;
}

Value* Value::find(std::string_view key) {
  return const_cast<Value*>(std::as_const(*this).find(key)); // this object is not const
}

std::string_view name(Value::Kind kind) {
  switch (kind) {
  case Value::Kind::text: return "a text";
  case Value::Kind::integer: return "a whole number";
  case Value::Kind::real: return "a number";
  case Value::Kind::boolean: return "true or false";
  case Value::Kind::date: return "a date";
  case Value::Kind::list: return "a list";
  case Value::Kind::table: return "a table";
  }
  return "something else";
}

namespace {

const Value* child(const Value& value, std::string_view step) {
  if (value.kind != Value::Kind::list) return value.find(step);
  const auto index = parse_number<std::size_t>(step);
  return index && *index < value.items.size() ? &value.items[*index] : nullptr;
}

} // namespace

const Value* find_path(const Value& root, std::string_view key) {
  const Value* value = &root;
  while (value != nullptr && !key.empty()) {
    const auto dot = key.find('.');
    value = child(*value, key.substr(0, dot));
    key = dot == std::string_view::npos ? "" : key.substr(dot + 1);
  }
  return value;
}

Place place_of(const Value& root, std::string_view key) {
  for (;;) {
    if (const Value* value = find_path(root, key)) return value->place;
    const auto dot = key.rfind('.');
    key = dot == std::string_view::npos ? "" : key.substr(0, dot);
  }
}

const Value* find_override(const Value& value) {
  if (value.place.is_override()) return &value;
  for (const Value& item : value.items) {
    if (const Value* found = find_override(item)) return found;
  }
  for (const Entry& entry : value.entries) {
    if (const Value* found = find_override(entry.value)) return found;
  }
  return nullptr;
}

namespace {

struct Override {
  std::string_view key; // the whole dotted one, for messages
  const Value& value;
  const Place& place;
  bool adds = false; // to a list
};

// A value alone is a list of one.
Result<> add(Value& at, const Override& override) {
  Value list;
  list.kind = Value::Kind::list;
  list.place = override.place;
  if (at.kind == Value::Kind::list) {
    list = at;
  } else if (at.kind != Value::Kind::table) {
    list.items.push_back(at);
  } else if (!at.entries.empty()) {
    return fail(ErrorKind::usage, fmt::format("{}: {}: is a table: += adds to a list",
                                              override.place.text(), override.key));
  }
  const Value& value = override.value;
  if (value.kind == Value::Kind::list) {
    list.items.insert(list.items.end(), value.items.begin(), value.items.end());
  } else {
    list.items.push_back(value);
  }
  at = std::move(list);
  return {};
}

Result<> assign(Value& at, std::string_view rest, const Override& override);

Result<> assign_in_list(Value& list, std::string_view step, std::string_view rest,
                        const Override& override) {
  if (step == "*") {
    for (Value& item : list.items) FANIN_TRY(assign(item, rest, override));
    return {};
  }
  const auto index = parse_number<std::size_t>(step);
  if (!index || *index >= list.items.size()) {
    return fail(
        ErrorKind::usage,
        fmt::format("{}: {}: the list has {}: \"{}\" should be an index from 0, or * for all of "
                    "them",
                    override.place.text(), override.key,
                    counted(list.items.size(), "entry", "entries"), step));
  }
  return assign(list.items[*index], rest, override);
}

Result<> assign(Value& at, std::string_view rest, const Override& override) {
  if (rest.empty()) {
    if (override.adds) return add(at, override);
    at = override.value;
    return {};
  }
  const auto dot = rest.find('.');
  const std::string_view step = rest.substr(0, dot);
  const std::string_view after = dot == std::string_view::npos ? "" : rest.substr(dot + 1);
  if (step.empty() || (dot != std::string_view::npos && after.empty())) {
    return fail(ErrorKind::usage, fmt::format("{}: {}: a part of the key is empty; write it as in "
                                              "readout.0.name=left",
                                              override.place.text(), override.key));
  }
  if (at.kind == Value::Kind::list) return assign_in_list(at, step, after, override);
  if (at.kind != Value::Kind::table) {
    return fail(ErrorKind::usage,
                fmt::format("{}: {}: there is nothing within {}, so \"{}\" leads nowhere",
                            override.place.text(), override.key, name(at.kind), step));
  }
  Value* next = at.find(step);
  if (next == nullptr) {
    at.entries.push_back({std::string(step), {}});
    next = &at.entries.back().value;
    next->place = override.place;
  }
  return assign(*next, after, override);
}

} // namespace

Result<> override_value(Value& root, std::string_view assignment, std::uint32_t ordinal) {
  const Place place{"--set", ordinal};
  const auto equals = assignment.find('=');
  std::string_view key = assignment.substr(0, equals);
  const bool adds = equals != std::string_view::npos && key.ends_with('+');
  if (adds) key.remove_suffix(1);
  if (equals == std::string_view::npos || key.empty()) {
    return fail(ErrorKind::usage, fmt::format("{}: \"{}\" is not of the form key=value, as in "
                                              "run.duration=5s",
                                              place.text(), assignment));
  }
  if (std::ranges::count(key, '.') >= key_parts_max) {
    return fail(ErrorKind::usage,
                fmt::format("{}: the key has more than {} parts", place.text(), key_parts_max));
  }
  const Value value = parse_toml_value(assignment.substr(equals + 1), place);
  return assign(root, key, {key, value, place, adds});
}

} // namespace fanin::settings
