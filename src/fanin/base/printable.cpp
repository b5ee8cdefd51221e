#include "fanin/base/printable.hpp"

#include <algorithm>
#include <cstdint>

#include <fmt/format.h>

namespace fanin {
namespace {

struct Character {
  std::string_view bytes;
  char32_t code = 0;
  bool valid = true; // else `bytes` is one byte that is not UTF-8
};

constexpr bool is_continuation(char byte) {
  return (static_cast<unsigned char>(byte) & 0xc0) == 0x80;
}

// The text is not empty.
Character first_of(std::string_view text) {
  const auto lead = static_cast<unsigned char>(text.front());
  if (lead < 0x80) return {text.substr(0, 1), lead};
  const std::size_t length = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
  const Character invalid{text.substr(0, 1), 0, false};
  if (lead < 0xc2 || lead > 0xf4 || text.size() < length) return invalid;
  char32_t code = lead & (0x7fU >> length);
  for (const char byte : text.substr(1, length - 1)) {
    if (!is_continuation(byte)) return invalid;
    code = code << 6 | (static_cast<unsigned char>(byte) & 0x3fU);
  }
  const bool overlong = (length == 3 && code < 0x800) || (length == 4 && code < 0x10000);
  const bool surrogate = code >= 0xd800 && code <= 0xdfff;
  if (overlong || surrogate || code > 0x10ffff) return invalid;
  return {text.substr(0, length), code};
}

// Control characters, ends of lines and paragraphs, and the direction of writing.
constexpr bool acts(char32_t code) {
  return code < 0x20 || (code >= 0x7f && code < 0xa0) || code == 0x61c || code == 0x200e ||
         code == 0x200f || (code >= 0x2028 && code <= 0x202e) || (code >= 0x2066 && code <= 0x2069);
}

constexpr bool is_space(char32_t code) { return code >= '\t' && code <= '\r'; }

// `visit` says whether to go on.
template <class Visit>
void for_each_character(std::string_view text, const Visit& visit) {
  while (!text.empty()) {
    const Character character = first_of(text);
    if (!visit(character)) return;
    text.remove_prefix(character.bytes.size());
  }
}

std::string shown(std::string_view text, std::size_t most, bool keeps_lines) {
  std::string result;
  for_each_character(text, [&](const Character& character) {
    std::string_view piece = character.bytes;
    if (!character.valid) {
      piece = "?";
    } else if (character.code == '\n' && keeps_lines) {
      piece = "\n";
    } else if (acts(character.code)) {
      piece = is_space(character.code) ? " " : "?";
    }
    if (result.size() + piece.size() > most) return false;
    result += piece;
    return true;
  });
  return result;
}

} // namespace

std::string printable(std::string_view text, std::size_t most) { return shown(text, most, false); }

std::string printable_lines(std::string_view text) {
  return shown(text, std::string_view::npos, true);
}

std::string printable_json(std::string json) {
  // What JSON escapes itself cannot occur, except for the ends of its lines.
  const bool plain =
      std::ranges::all_of(json, [](char c) { return c == '\n' || (c >= ' ' && c <= '~'); });
  if (plain) return json;
  std::string result;
  for_each_character(json, [&](const Character& character) {
    if (character.valid && character.code != '\n' && acts(character.code)) {
      result += fmt::format("\\u{:04x}", static_cast<std::uint32_t>(character.code));
    } else {
      result += character.bytes;
    }
    return true;
  });
  return result;
}

} // namespace fanin
