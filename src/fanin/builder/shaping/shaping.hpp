// Traffic shaping: what readout and builder units agree on (docs/modules/builder/shaping.md).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace fanin::builder::shaping {

// Which builder unit a readout unit sends to next, and who is granted data.
enum class Policy : std::uint8_t { none, random, linear_shift, tokens, barrel_shifter };

inline constexpr std::array policies{Policy::none, Policy::random, Policy::linear_shift,
                                     Policy::tokens, Policy::barrel_shifter};

// As in the configuration.
[[nodiscard]] constexpr std::string_view name(Policy policy) {
  switch (policy) {
  case Policy::none: break;
  case Policy::random: return "random";
  case Policy::linear_shift: return "linear-shift";
  case Policy::tokens: return "tokens";
  case Policy::barrel_shifter: return "barrel-shifter";
  }
  return "none";
}
[[nodiscard]] constexpr std::optional<Policy> policy_named(std::string_view word) {
  for (const Policy policy : policies) {
    if (name(policy) == word) return policy;
  }
  return {};
}

// Grants for so many carriers to each readout unit, at least: while one is under way there is room
// for the next.
inline constexpr std::uint32_t carriers_least = 2;

struct Shaping {
  Policy policy = Policy::none;
  // Bytes that a builder unit gets in one turn of a readout unit, at most; so the largest message.
  std::uint32_t carrier = 64U << 10;
  std::uint64_t window = 1U << 20; // bytes granted and not received, of each builder unit
  std::uint32_t tokens = 2; // readout units that may send to one builder unit at once, if tokens

  [[nodiscard]] bool on() const { return policy != Policy::none; }
  // Blocks are cut so that carriers are full, and no carrier is cut short because of a grant.
  [[nodiscard]] bool fills_carriers() const { return policy == Policy::barrel_shifter; }
  // Of one rail of a builder unit: rails share its window, and nothing else.
  [[nodiscard]] Shaping per_rail(std::size_t rails) const {
    Shaping one = *this;
    one.window /= rails;
    return one;
  }
  // The most bytes that one readout unit may be granted and has not delivered.
  [[nodiscard]] std::uint64_t share(std::size_t readout_units) const {
    return window / readout_units;
  }
  // The least window that can serve so many readout units.
  [[nodiscard]] std::uint64_t window_least(std::size_t readout_units) const {
    return std::uint64_t{carriers_least} * carrier * readout_units;
  }
  [[nodiscard]] std::uint64_t window_usual(std::size_t readout_units) const {
    return 2 * window_least(readout_units);
  }
};

} // namespace fanin::builder::shaping
