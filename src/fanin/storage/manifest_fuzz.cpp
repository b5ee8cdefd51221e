// The manifest of a run, whatever stands in it: it is read, or one line of error names the file.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "fanin/base/assert.hpp"
#include "fanin/storage/manifest.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace fanin::storage;
  const std::string_view text{reinterpret_cast<const char*>(data), size};
  const auto manifest = parse_manifest(text, "fuzz.json");
  if (!manifest) {
    FANIN_ASSERT(manifest.error().text.starts_with("fuzz.json:"));
    FANIN_ASSERT(manifest.error().text.find('\n') == std::string::npos);
    return 0;
  }
  for (const auto& winner : manifest->winners) FANIN_ASSERT(!winner.events.empty());
  static_cast<void>(run_of(text.substr(0, text.find('\n'))));
  return 0;
}
