// What a host can do for fanin, what is wrong with it, and the remedy (`fanin doctor`).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "fanin/base/export.hpp"
#include "fanin/base/result.hpp"
#include "fanin/doctor/host.hpp"

namespace fanin::doctor {

enum class Level : std::uint8_t {
  good,
  hint, // works, and could be faster or larger
  problem // something does not work
};
[[nodiscard]] FANIN_INTERNAL_API std::string_view name(Level level);

struct Finding {
  std::string what; // "locked memory"
  Level level = Level::good;
  std::string found;
  std::string remedy; // empty: nothing to do
};
using Findings = std::vector<Finding>;

// Only reads files of the host. `providers`: those of libfabric that can be used, or why it cannot
// be used.
[[nodiscard]] FANIN_INTERNAL_API Findings
examine(const Host& host, const Result<std::vector<std::string>>& providers);

namespace detail {
// With a remedy only if it is needed.
inline Finding hint_if(bool needed, std::string what, std::string found, std::string remedy) {
  return {std::move(what), needed ? Level::hint : Level::good, std::move(found),
          needed ? std::move(remedy) : ""};
}
void examine_rdma(const Host& host, Findings& findings); // devices.cpp
void examine_interfaces(const Host& host, Findings& findings);
void examine_numa(const Host& host, Findings& findings);
void examine_limits(const Host& host, Findings& findings); // limits.cpp
void examine_memory(const Host& host, Findings& findings);
void examine_tcp(const Host& host, Findings& findings);
void examine_processors(const Host& host, Findings& findings);
} // namespace detail

} // namespace fanin::doctor
