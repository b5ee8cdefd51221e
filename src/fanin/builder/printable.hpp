// What a peer says, fit for a log: of bounded length, and no control characters.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>

namespace fanin::builder {

inline constexpr std::size_t reason_shown = 1000; // characters: it names a path, or sources

[[nodiscard]] inline std::string printable(std::string_view text, std::size_t most = reason_shown) {
  std::string shown{text.substr(0, most)};
  std::ranges::replace_if(shown, [](char c) { return c < ' ' || c > '~'; }, '?');
  return shown;
}

} // namespace fanin::builder
