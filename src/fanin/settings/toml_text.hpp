// What can be seen in the text of a configuration without parsing it: keys that are too deep for
// the parser, and what its errors mean.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace fanin::settings {

// The first line with a dotted key of too many parts: toml++ calls itself for each of them.
[[nodiscard]] std::optional<std::size_t> line_too_deep(std::string_view text);

// The line of the first quotation mark without a counterpart.
[[nodiscard]] std::optional<std::size_t> line_of_open_quotation(std::string_view text);

// What to write in place of a line that the parser refuses, if that can be guessed: a value without
// its quotation marks, with typographic ones, or True. Else empty.
[[nodiscard]] std::string remedy_for_line(std::string_view text, std::size_t line);

} // namespace fanin::settings
