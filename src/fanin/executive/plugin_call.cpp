#include "fanin/executive/plugin_call.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <string>

#include <fmt/format.h>

#include "fanin/base/assert.hpp"
#include "fanin/base/printable.hpp"

namespace fanin::executive {
namespace {

// Of this thread: a signal for a fault comes to the thread at fault. The handler allocates nothing,
// and finds the text whole or none.
thread_local std::array<char, plugin_call_max> text_of_call;
thread_local std::atomic<std::size_t> size_of_call = 0;
static_assert(std::atomic<std::size_t>::is_always_lock_free);

} // namespace

PluginCall::PluginCall(std::string_view text) {
  FANIN_ASSERT(size_of_call == 0);
  const std::string line = printable(text, text_of_call.size());
  std::ranges::copy(line, text_of_call.begin());
  size_of_call = line.size();
}

PluginCall::PluginCall(const source::SourceSettings& settings, std::string_view what)
    : PluginCall(fmt::format("{}: {}: making {} \"{}\" of type \"{}\"", settings.place.text(),
                             settings.key, what, settings.name, settings.type)) {}

PluginCall::~PluginCall() { size_of_call = 0; }

std::string_view plugin_call() { return {text_of_call.data(), size_of_call}; }

} // namespace fanin::executive
