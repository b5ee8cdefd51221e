/// \file
/// Log lines go through a function that the user of the library provides. The library itself writes
/// to no stream.
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>

namespace fanin {

enum class LogLevel : std::uint8_t { debug, info, warning, error };

/// It is called on the thread of the loop of the caller. It must not throw.
using LogFunction = std::function<void(LogLevel, std::string_view)>;

} // namespace fanin
