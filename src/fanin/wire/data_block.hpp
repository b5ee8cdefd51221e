/// \file
/// The data message: fragments of one source for consecutive events, from a readout unit to a
/// builder unit. On the wire:
///
///     DataBlockHeader (64 bytes) | table: entries x FragmentEntry (8 bytes) | payload, back to
///     back
///
/// Little-endian, two extents: header and table, then payload. A fragment too large for one message
/// travels in several messages of one entry each, in order on one connection.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

#include "fanin/base/export.hpp"
#include "fanin/base/identity.hpp"
#include "fanin/base/result.hpp"
#include "fanin/wire/fragment.hpp"

namespace fanin::wire {

static_assert(std::endian::native == std::endian::little, "the wire format is little-endian");

inline constexpr std::uint32_t data_block_magic = 0x54504e46; ///< "FNPT"

struct DataBlockHeader {
  std::uint32_t magic = data_block_magic;
  RunNumber run = 0;
  std::uint64_t batch_first = 0; ///< the batch, as the event manager cut it
  std::uint32_t batch_events = 0;
  SourceId source = 0;
  std::uint64_t first_event = 0; ///< of this block
  std::uint32_t entries = 0; ///< at least 1
  std::uint32_t payload_size = 0; ///< in this message
  std::uint32_t payload_offset = 0; ///< within the fragment, if it travels in several messages
  NodeId readout_unit = 0;
  Attempt attempt = 0;
  Incarnation readout_incarnation = 0;
  Incarnation builder_incarnation = 0;
  std::uint32_t checksum = 0; ///< CRC32C of header (this field 0) and table; 0: none
  std::uint32_t fills_carrier = 0; ///< 1: the last message of a full carrier (shaping); else 0

  [[nodiscard]] EventRange batch() const { return {batch_first, batch_first + batch_events}; }
  [[nodiscard]] EventRange events() const { return {first_event, first_event + entries}; }
};
static_assert(sizeof(DataBlockHeader) == 64);
static_assert(offsetof(DataBlockHeader, first_event) == 24);
static_assert(offsetof(DataBlockHeader, readout_unit) == 44);
static_assert(offsetof(DataBlockHeader, checksum) == 56);
static_assert(std::is_trivially_copyable_v<DataBlockHeader>);

struct DataBlockView {
  DataBlockHeader header;
  std::span<const FragmentEntry> table; ///< inside the message
  std::span<const std::byte> payload; ///< inside the message
  /// True: a piece of one fragment. The table's only entry has the size of the whole fragment.
  [[nodiscard]] bool partial() const { return partial_; }
  bool partial_ = false;
};

/// Computes the checksum and writes it into the header at the start of `header_and_table`; 0
/// without `checksum`.
FANIN_INTERNAL_API void seal_data_block(std::span<std::byte> header_and_table, bool checksum);

/// Checks all that can be checked without knowing the run: magic, lengths, sums of sizes, event
/// numbers within the batch, the checksum if there is one. The message may have come in two pieces:
/// header and table in `message`, the payload in `rest`. Errors: malformed.
[[nodiscard]] FANIN_INTERNAL_API Result<DataBlockView>
decode_data_block(std::span<const std::byte> message, std::span<const std::byte> rest = {});

} // namespace fanin::wire
