// For what this process is calling a plug-in now. The process may end there: by a crash, an exit,
// or because the user does not wait any longer. The signal handler that says why a process ended
// reads this.
#pragma once

#include <cstddef>
#include <string_view>

#include "fanin/base/export.hpp"
#include "fanin/source/settings.hpp"

namespace fanin::executive {

// For as long as it lives, plugin_call() is its text. One at a time: all on one thread.
class PluginCall {
public:
  // `text`: file, line and key, and what is asked for ("loading plug-in ./x.so"); on one line, cut
  // to what there is room for.
  explicit PluginCall(std::string_view text);
  // For making a `what`, such as "source", from these settings.
  PluginCall(const source::SourceSettings& settings, std::string_view what);
  ~PluginCall();
  PluginCall(const PluginCall&) = delete;
  PluginCall& operator=(const PluginCall&) = delete;
};

inline constexpr std::size_t plugin_call_max = 512; // bytes

// Empty: no plug-in is called now. May be called in a signal handler.
[[nodiscard]] FANIN_INTERNAL_API std::string_view plugin_call();

} // namespace fanin::executive
