/// \file
/// Paths as a shell would read them.
#pragma once

#include <string>

#include "fanin/base/export.hpp"

namespace fanin {

/// The path with the user's home folder in place of a leading "~/", or of "~". A shell replaces it
/// in words of its own, and not in a configuration or behind an equals sign.
[[nodiscard]] FANIN_INTERNAL_API std::string expand_home(const std::string& path);

} // namespace fanin
