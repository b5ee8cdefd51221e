// Numbers in text.
#pragma once

#include <charconv>
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

} // namespace fanin
