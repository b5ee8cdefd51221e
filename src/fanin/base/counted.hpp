// A number with its noun, for messages: "1 source", "2 sources", "2 batches".
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include <fmt/format.h>

namespace fanin {

[[nodiscard]] inline std::string counted(std::uint64_t number, std::string_view one,
                                         std::string_view many) {
  return fmt::format("{} {}", number, number == 1 ? one : many);
}

[[nodiscard]] inline std::string counted(std::uint64_t number, std::string_view one) {
  return counted(number, one, fmt::format("{}s", one));
}

} // namespace fanin
