/// \file
/// Text from outside (a peer, a plug-in, a file, a command line), fit for a terminal and for a line
/// of a log.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "fanin/base/export.hpp"

namespace fanin {

/// At most `most` bytes of the text, on one line. White space becomes ' '. '?' stands for each
/// character that does more than be seen (control characters, which begin escape sequences, and
/// those that change the direction of writing), and for each byte that is not UTF-8.
[[nodiscard]] FANIN_INTERNAL_API std::string printable(std::string_view text,
                                                       std::size_t most = std::string_view::npos);

/// The same for a text of several lines, whose ends stay.
[[nodiscard]] FANIN_INTERNAL_API std::string printable_lines(std::string_view text);

/// The same for JSON that was written without an indent or with one: such characters, which stand
/// within its strings, become escape sequences of JSON ("u" and four digits).
[[nodiscard]] std::string printable_json(std::string json);

} // namespace fanin
