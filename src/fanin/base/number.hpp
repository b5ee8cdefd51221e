// Numbers in text.
#pragma once

#include <charconv>
#include <concepts>
#include <optional>
#include <string_view>
#include <system_error>

namespace fanin {

// The whole text as a number. None: it is something else, or out of the range of T.
template <class T>
[[nodiscard]] std::optional<T> parse_number(std::string_view text, auto... base) {
  T number{};
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number, base...);
  return error == std::errc{} && stop == end ? std::optional{number} : std::nullopt;
}

// Likewise; "0x400" is hexadecimal.
template <std::integral T>
[[nodiscard]] std::optional<T> parse_number_or_hexadecimal(std::string_view text) {
  const bool hexadecimal = text.starts_with("0x");
  return parse_number<T>(text.substr(hexadecimal ? 2 : 0), hexadecimal ? 16 : 10);
}

} // namespace fanin
