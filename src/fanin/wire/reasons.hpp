/// \file
/// Why fragments are dropped, and why an event lacks one: the same words and numbers in messages,
/// run files, manifests and reports.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace fanin::wire {

/// Why a fragment was dropped before it was announced. A new one changes drop_reasons, name(), the
/// size of SourceCounters (and with it protocol_version), and the documents that list the reasons.
enum class DropReason : std::uint8_t {
  number_back, ///< its number is below one that was accepted
  number_repeat, ///< the same number again
  number_jump, ///< nothing confirmed its number
  oversize, ///< over fragment_max
  late, ///< its event had been given up (deadline); the ledger counts it as late, not as dropped
  before_first ///< it came before the source's first number
};
inline constexpr std::size_t drop_reasons = 6;
[[nodiscard]] constexpr const char* name(DropReason reason) {
  switch (reason) {
  case DropReason::number_back: return "number_back";
  case DropReason::number_repeat: return "number_repeat";
  case DropReason::number_jump: return "number_jump";
  case DropReason::oversize: return "oversize";
  case DropReason::late: return "late";
  case DropReason::before_first: return "before_first";
  }
  return "unknown";
}

/// Why a source is missing in an event.
enum class MissingReason : std::uint8_t {
  absent = 1, ///< the source has no fragment
  deadline = 2, ///< the source was silent for event.deadline; in earlier files also: came too late
  lost = 3, ///< its readout unit died
  dropped = 4 ///< the fragment could not be taken, because of its number or its size
};
inline constexpr std::size_t missing_reasons = 5; ///< 0 is none
[[nodiscard]] constexpr const char* name(MissingReason reason) {
  switch (reason) {
  case MissingReason::absent: return "absent";
  case MissingReason::deadline: return "deadline";
  case MissingReason::lost: return "lost";
  case MissingReason::dropped: return "dropped";
  }
  return "unknown";
}
/// Events that lack a fragment, by MissingReason.
using MissingCounts = std::array<std::uint64_t, missing_reasons>;

} // namespace fanin::wire
