// What the library has to say to people goes through a function that its user provides; the library
// itself writes nothing to any stream.
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>

namespace fanin {

enum class LogLevel : std::uint8_t { debug, info, warning, error };

// Thread: whichever loop the speaker runs on. Must not throw.
using LogFunction = std::function<void(LogLevel, std::string_view)>;

} // namespace fanin
