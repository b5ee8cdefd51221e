// Texts that are one whole number and nothing else.
#pragma once

#include <charconv>
#include <concepts>
#include <optional>
#include <string_view>
#include <system_error>

namespace fanin {

// None: it is something else, or out of range.
template <std::integral Number>
[[nodiscard]] std::optional<Number> whole_number(std::string_view text, int base = 10) {
  Number number{};
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number, base);
  if (error != std::errc{} || stop != end) return std::nullopt;
  return number;
}

// Likewise; "0x400" is hexadecimal.
template <std::integral Number>
[[nodiscard]] std::optional<Number> whole_or_hexadecimal(std::string_view text) {
  const bool hexadecimal = text.starts_with("0x");
  return whole_number<Number>(text.substr(hexadecimal ? 2 : 0), hexadecimal ? 16 : 10);
}

} // namespace fanin
