#include "fanin/settings/toml_text.hpp"

#include <algorithm>
#include <cctype>

#include <fmt/format.h>

#include "fanin/settings/tree.hpp"

namespace fanin::settings {
namespace {

struct Quotation {
  std::size_t end = 0; // what follows
  bool closed = false;
};

// The text that begins at `at` with a quotation mark.
Quotation quotation_at(std::string_view text, std::size_t at) {
  const char mark = text[at];
  const std::string three(3, mark);
  const bool long_one = text.substr(at, 3) == three; // over several lines
  std::size_t i = at + (long_one ? 3 : 1);
  for (; i < text.size(); ++i) {
    if (text[i] == '\\' && mark == '"') {
      ++i;
    } else if (long_one && text.substr(i, 3) == three) {
      for (i += 3; i < text.size() && text[i] == mark;) ++i; // its last characters
      return {i, true};
    } else if (!long_one && (text[i] == mark || text[i] == '\n')) {
      return {i + 1, text[i] == mark};
    }
  }
  return {text.size(), false};
}

std::size_t line_at(std::string_view text, std::size_t at) {
  const auto end = text.begin() + static_cast<std::ptrdiff_t>(at);
  return static_cast<std::size_t>(1 + std::count(text.begin(), end, '\n'));
}

std::size_t end_of_comment(std::string_view text, std::size_t at) {
  return std::min(text.find('\n', at), text.size() - 1);
}

std::string_view trimmed(std::string_view text) {
  const auto first = text.find_first_not_of(" \t\r");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t\r") - first + 1);
}

std::string_view line_of(std::string_view text, std::size_t line) {
  for (; line > 1; --line) {
    const auto end = text.find('\n');
    if (end == std::string_view::npos) return {};
    text.remove_prefix(end + 1);
  }
  return text.substr(0, text.find('\n'));
}

} // namespace

std::optional<std::size_t> line_too_deep(std::string_view text) {
  constexpr std::string_view bare = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
                                    "0123456789_- \t";
  int parts = 1;
  for (std::size_t i = 0; i < text.size();) {
    if (text[i] == '"' || text[i] == '\'') {
      i = quotation_at(text, i).end;
      continue;
    }
    if (text[i] == '#') i = end_of_comment(text, i);
    if (text[i] == '.') {
      if (++parts > key_parts_max) return line_at(text, i);
    } else if (bare.find(text[i]) == std::string_view::npos) {
      parts = 1;
    }
    ++i;
  }
  return std::nullopt;
}

std::optional<std::size_t> line_of_open_quotation(std::string_view text) {
  for (std::size_t i = 0; i < text.size();) {
    if (text[i] == '"' || text[i] == '\'') {
      const Quotation quotation = quotation_at(text, i);
      if (!quotation.closed) return line_at(text, i);
      i = quotation.end;
      continue;
    }
    if (text[i] == '#') i = end_of_comment(text, i);
    ++i;
  }
  return std::nullopt;
}

std::string remedy_for_line(std::string_view text, std::size_t number) {
  const std::string_view line = line_of(text, number);
  const auto equals = line.find('=');
  if (equals == std::string_view::npos) return {};
  const std::string_view key = trimmed(line.substr(0, equals));
  const std::string_view written = line.substr(equals + 1);
  const std::string_view value = trimmed(written.substr(0, written.find('#')));
  if (value.contains("\u201c") || value.contains("\u201d"))
    return "write straight quotation marks (\")";
  if (value.empty() || value.find_first_of("\"'[]{},\\") != std::string_view::npos) return {};
  std::string lower(value);
  for (char& c : lower) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  const bool truth = lower == "true" || lower == "false";
  return truth ? fmt::format("write {} = {}", key, lower)
               : fmt::format("a text stands in quotation marks: {} = \"{}\"", key, value);
}

} // namespace fanin::settings
