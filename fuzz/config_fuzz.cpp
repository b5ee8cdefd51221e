// The configuration: whatever the text, it is a configuration or one line of error that names the
// file.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "fanin/config/configuration.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text{reinterpret_cast<const char*>(data), size};
  // What follows a line "#set" is an override, as on the command line.
  const auto mark = text.find("\n#set ");
  std::vector<std::string> overrides;
  if (mark != std::string_view::npos) overrides.emplace_back(text.substr(mark + 6));
  const auto result = fanin::config::parse(text.substr(0, mark), "fuzz.toml", overrides);
  if (result) {
    for (const auto& process : result->processes) {
      if (process.nodes.empty()) std::abort();
    }
    return 0;
  }
  const std::string& error = result.error().text;
  if (error.find('\n') != std::string::npos) std::abort();
  if (!error.starts_with("fuzz.toml:") && !error.starts_with("--set:")) std::abort();
  return 0;
}
