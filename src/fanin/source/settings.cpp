#include "fanin/source/settings.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <charconv>

#include "fanin/base/units.hpp"

namespace fanin::source {
namespace {

Result<std::int64_t> parse_integer(std::string_view text) {
  const bool negative = text.starts_with('-');
  std::string_view digits = negative ? text.substr(1) : text;
  const bool hexadecimal = digits.starts_with("0x");
  if (hexadecimal) digits.remove_prefix(2);
  std::uint64_t magnitude = 0;
  const char* const end = digits.data() + digits.size();
  const auto [stop, code] = std::from_chars(digits.data(), end, magnitude, hexadecimal ? 16 : 10);
  if (code != std::errc{} || stop != end || magnitude > (std::uint64_t{1} << 63) - 1) {
    return fail(ErrorKind::usage, fmt::format("\"{}\" is not a whole number", text));
  }
  const auto value = static_cast<std::int64_t>(magnitude);
  return negative ? -value : value;
}

} // namespace

const Setting* SettingsReader::find(std::string_view key) {
  known_.emplace(key);
  const auto found = settings_.values.find(std::string(key));
  return found == settings_.values.end() ? nullptr : &found->second;
}

Error SettingsReader::error(std::string_view key, std::string_view reason) const {
  std::string file = settings_.file;
  std::uint32_t line = settings_.line;
  const auto found = settings_.values.find(std::string(key));
  if (found != settings_.values.end() && !found->second.file.empty()) {
    file = found->second.file;
    line = found->second.line;
  }
  const std::string where = file.empty() ? std::string{} : fmt::format("{}:{}: ", file, line);
  return {ErrorKind::usage, fmt::format("{}{}: {} (source {}, type \"{}\")", where, key, reason,
                                        settings_.id, settings_.type)};
}

void SettingsReader::reject(std::string_view key, std::string_view reason) {
  if (result_) result_ = std::unexpected(error(key, reason));
}

bool SettingsReader::has(std::string_view key) { return find(key) != nullptr; }

std::string SettingsReader::text(std::string_view key, std::string_view fallback) {
  const Setting* setting = find(key);
  return setting == nullptr ? std::string(fallback) : setting->value;
}

std::string SettingsReader::required_text(std::string_view key) {
  const Setting* setting = find(key);
  if (setting == nullptr)
    reject(key, "is missing");
  else if (setting->value.empty())
    reject(key, "is empty");
  return setting == nullptr ? std::string{} : setting->value;
}

std::uint64_t SettingsReader::size(std::string_view key, std::uint64_t fallback) {
  const Setting* setting = find(key);
  if (setting == nullptr) return fallback;
  const auto value = parse_size(setting->value);
  if (!value) reject(key, value.error().text);
  return value.value_or(fallback);
}

double SettingsReader::rate_hz(std::string_view key, double fallback) {
  const Setting* setting = find(key);
  if (setting == nullptr) return fallback;
  const auto value = parse_rate_hz(setting->value);
  if (!value) reject(key, value.error().text);
  return value.value_or(fallback);
}

Duration SettingsReader::duration(std::string_view key, Duration fallback) {
  const Setting* setting = find(key);
  if (setting == nullptr) return fallback;
  const auto value = parse_duration(setting->value);
  if (!value) reject(key, value.error().text);
  return value.value_or(fallback);
}

std::int64_t SettingsReader::integer(std::string_view key, std::int64_t fallback, std::int64_t min,
                                     std::int64_t max) {
  const Setting* setting = find(key);
  if (setting == nullptr) return fallback;
  const auto value = parse_integer(setting->value);
  if (!value) {
    reject(key, value.error().text);
  } else if (*value < min || *value > max) {
    reject(key, fmt::format("{} is not between {} and {}", setting->value, min, max));
    return fallback;
  }
  return value.value_or(fallback);
}

bool SettingsReader::boolean(std::string_view key, bool fallback) {
  const Setting* setting = find(key);
  if (setting == nullptr) return fallback;
  if (setting->value != "true" && setting->value != "false") {
    reject(key, fmt::format("\"{}\" is neither true nor false", setting->value));
  }
  return setting->value == "true";
}

std::size_t SettingsReader::choice(std::string_view key,
                                   std::initializer_list<std::string_view> names) {
  const Setting* setting = find(key);
  if (setting == nullptr) return 0;
  std::size_t index = 0;
  for (const std::string_view name : names) {
    if (name == setting->value) return index;
    ++index;
  }
  reject(key, fmt::format("\"{}\" is none of {}", setting->value, fmt::join(names, ", ")));
  return 0;
}

Result<> SettingsReader::finish() {
  if (!result_) return result_;
  for (const auto& [key, setting] : settings_.values) {
    if (!known_.contains(key)) {
      reject(key, fmt::format("unknown key; known here: {}", fmt::join(known_, ", ")));
    }
  }
  return result_;
}

} // namespace fanin::source
