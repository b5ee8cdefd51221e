/// \file
/// The messages between a builder unit and a filter unit, which connects and asks for batches.
/// Little-endian; each begins with a FilterHeader. docs/modules/builder/filter.md has trigger,
/// effect and failure of each.
///
///     filter unit -> builder unit   FilterHello
///     builder unit -> filter unit   FilterBatch, then as many data messages (wire/data_block.hpp)
///     as it
///                                   says, as readout units have sent them; or FilterRefuse | text
///     filter unit -> builder unit   FilterDecided | FilterDecision[] | results, back to back
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

#include "fanin/base/export.hpp"
#include "fanin/base/identity.hpp"
#include "fanin/base/result.hpp"

namespace fanin::wire {

inline constexpr std::uint32_t filter_magic = 0x54464e46; ///< "FNFT"
inline constexpr std::uint16_t filter_version = 1;
inline constexpr std::uint32_t filter_result_max = 4096; ///< bytes of one event's result
inline constexpr std::uint32_t filter_ahead_max = 64;
inline constexpr std::uint32_t filter_refusal_max = 256; ///< bytes of the text of a refusal

enum class FilterMessage : std::uint16_t { hello = 1, batch, decided, refuse };

struct FilterHeader {
  std::uint32_t magic = filter_magic;
  std::uint16_t version = filter_version;
  FilterMessage type{};
};

struct FilterHello {
  FilterHeader header{.type = FilterMessage::hello};
  std::uint64_t system_digest = 0;
  std::uint32_t ahead = 0; ///< batches that it takes at a time
  std::uint32_t silence_ms = 0; ///< longest silence while it decides; then it is dead
  std::array<char, 64> name{}; ///< padded with 0

  [[nodiscard]] std::string_view text() const {
    return {name.data(), ::strnlen(name.data(), name.size())};
  }
};

struct FilterBatch {
  FilterHeader header{.type = FilterMessage::batch};
  std::uint64_t ticket = 0; ///< of this batch on this connection
  EventNumber first = 0;
  std::uint32_t events = 0;
  std::uint32_t from = 0; ///< events before this one in the batch are decided already
  RunNumber run = 0;
  std::uint32_t blocks = 0; ///< data messages that follow
  std::uint32_t report_each = 0; ///< 1: say each decision at once
  std::uint32_t reserved = 0;

  [[nodiscard]] EventRange range() const { return {first, first + events}; }
};

struct FilterDecided {
  FilterHeader header{.type = FilterMessage::decided};
  std::uint64_t ticket = 0;
  std::uint32_t from = 0; ///< index in the batch of the first decision
  std::uint32_t count = 0; ///< 0: a sign of life only
};

struct FilterDecision {
  std::uint32_t streams = 0; ///< a bit for each stream that wants it; prescales come later
  std::uint32_t result_size = 0;
  std::uint32_t result_crc32c = 0;
  std::uint32_t reserved = 0;
};

/// Followed by text: why the hello is refused for good. It is the same in all versions.
struct FilterRefuse {
  FilterHeader header{.type = FilterMessage::refuse};
  std::uint32_t text_size = 0;
  std::uint32_t reserved = 0;
};

static_assert(sizeof(FilterHeader) == 8 && sizeof(FilterHello) == 88 && sizeof(FilterBatch) == 48);
static_assert(sizeof(FilterDecided) == 24 && sizeof(FilterDecision) == 16 &&
              sizeof(FilterRefuse) == 16);
static_assert(std::is_trivially_copyable_v<FilterHello> &&
              std::is_trivially_copyable_v<FilterBatch> &&
              std::is_trivially_copyable_v<FilterDecided>);

/// Errors: malformed, also for a value that no good peer sends; refused, for a hello of another
/// version.
[[nodiscard]] FANIN_INTERNAL_API Result<FilterHello>
decode_filter_hello(std::span<const std::byte> message);
[[nodiscard]] FANIN_INTERNAL_API Result<FilterBatch>
decode_filter_batch(std::span<const std::byte> message);

/// Whether it is a refusal, in any version.
[[nodiscard]] FANIN_INTERNAL_API bool is_filter_refusal(std::span<const std::byte> message);
/// Its text. Errors: malformed.
[[nodiscard]] FANIN_INTERNAL_API Result<std::string>
decode_filter_refusal(std::span<const std::byte> message);

struct DecidedView {
  FilterDecided decided;
  std::span<const FilterDecision> decisions; ///< inside the message
  std::span<const std::byte> results; ///< inside the message; as long as the decisions say
};
[[nodiscard]] FANIN_INTERNAL_API Result<DecidedView>
decode_filter_decided(std::span<const std::byte> message);

} // namespace fanin::wire
