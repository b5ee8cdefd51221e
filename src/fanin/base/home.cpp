#include "fanin/base/home.hpp"

#include <cstdlib>

namespace fanin {

std::string expand_home(const std::string& path) {
  const char* const home = std::getenv("HOME");
  const bool meant = path == "~" || path.starts_with("~/");
  return meant && home != nullptr && *home != '\0' ? home + path.substr(1) : path;
}

} // namespace fanin
