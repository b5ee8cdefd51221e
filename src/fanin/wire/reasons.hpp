/// \file
/// Why fragments are dropped, and why an event lacks one: the same words and numbers in messages,
/// run files, manifests and reports.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace fanin::wire {

/// Why a fragment was dropped before it was announced. A new reason is a line here and one in the
/// table below; status messages get longer with it. EventNumbers (source/) drops; docs/plugins.md
/// explains the reasons.
enum class DropReason : std::uint8_t {
  number_back, ///< its number is below one that was accepted
  number_repeat, ///< the same number again
  number_jump, ///< nothing confirmed its number
  oversize, ///< over fragment_max
  late, ///< its event had been given up (deadline)
  before_first, ///< it came before the source's first number
  count_ ///< how many there are
};
inline constexpr std::array drop_reason_names = {"number_back", "number_repeat", "number_jump",
                                                 "oversize",    "late",          "before_first"};
inline constexpr std::size_t drop_reasons = drop_reason_names.size();
static_assert(drop_reasons == static_cast<std::size_t>(DropReason::count_), "a name for each");
[[nodiscard]] constexpr const char* name(DropReason reason) {
  const auto at = static_cast<std::size_t>(reason);
  return at < drop_reasons ? drop_reason_names[at] : "unknown";
}
/// The ledger counts such a fragment as late, not as dropped, and nothing is logged: that is a rule
/// and no fault of the source.
[[nodiscard]] constexpr bool counts_as_late(DropReason reason) {
  return reason == DropReason::late;
}
/// Its number was not accepted, so that it may have been the next one with a wrong number.
[[nodiscard]] constexpr bool is_about_number(DropReason reason) {
  return reason == DropReason::number_back || reason == DropReason::number_repeat ||
         reason == DropReason::number_jump;
}

/// Why a source is missing in an event. A new reason is a line here and one in the table below.
enum class MissingReason : std::uint8_t {
  absent = 1, ///< the source has no fragment
  deadline = 2, ///< the source was silent for event.deadline
  lost = 3, ///< its readout unit had the fragment, and died
  dropped = 4, ///< the fragment could not be taken, because of its number or its size
  unread = 5 ///< nobody read the source then: its readout unit was dead
};
struct MissingReasonText {
  const char* name; ///< in JSON
  const char* text; ///< after the name of a source, in a sentence
  const char* detail; ///< more, where there is room; or empty
};
inline constexpr std::array missing_reason_texts = {
    MissingReasonText{"unknown", "for an unknown reason", ""}, // 0 is none
    MissingReasonText{"absent", "absent", "the source has no fragment"},
    MissingReasonText{"deadline", "silent at the deadline", ""},
    MissingReasonText{"lost", "lost with its readout unit", ""},
    MissingReasonText{"dropped", "dropped at its source",
                      "its number, its size or its bytes were wrong"},
    MissingReasonText{"unread", "not read", "its readout unit was dead"}};
inline constexpr std::size_t missing_reasons = missing_reason_texts.size();
[[nodiscard]] constexpr bool is_missing_reason(std::uint64_t number) {
  return number != 0 && number < missing_reasons;
}
/// `reason` is a number of a file or message, which may be wrong.
[[nodiscard]] constexpr const MissingReasonText& text_of_missing(std::uint64_t reason) {
  return missing_reason_texts[reason < missing_reasons ? reason : 0];
}
[[nodiscard]] constexpr const char* name(MissingReason reason) {
  return text_of_missing(static_cast<std::uint64_t>(reason)).name;
}
/// Events that lack a fragment, by MissingReason.
using MissingCounts = std::array<std::uint64_t, missing_reasons>;

/// Why a readout unit says that a fragment is absent.
enum class AbsentReason : std::uint32_t {
  none, ///< the source skipped the number
  silent, ///< the source was given up until a later number
  dropped, ///< the source's fragment could not be taken (number or size)
  unread ///< the readout unit had died, and the source has sent no later number since
};
/// The reason that the event gets for that fragment.
[[nodiscard]] constexpr MissingReason missing_reason(AbsentReason reason) {
  switch (reason) {
  case AbsentReason::silent: return MissingReason::deadline;
  case AbsentReason::dropped: return MissingReason::dropped;
  case AbsentReason::unread: return MissingReason::unread;
  case AbsentReason::none: break;
  }
  return MissingReason::absent;
}

} // namespace fanin::wire
