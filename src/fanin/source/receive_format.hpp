/// \file
/// The bytes of a connection to a `receive` source: one preface, which is answered from version 2
/// on, then messages. A message is a header and, for a fragment, its payload. From version 3 on the
/// source acknowledges what it has announced. From version 4 on an OwnChecksum follows the preface,
/// the answer, each header and each acknowledgement. Little-endian.
/// docs/receive-format.md describes them.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace fanin::source {

static_assert(std::endian::native == std::endian::little, "these structures are the bytes");

inline constexpr std::uint16_t receive_version = 4; ///< the latest one

struct ReceivePreface {
  std::array<char, 8> magic{'F', 'A', 'N', 'I', 'N', 'R', 'C', 'V'};
  std::uint16_t version = 1; ///< from 2 on a ReceiveSender follows
  std::uint16_t reserved = 0;
  std::uint32_t source = 0;
};
static_assert(sizeof(ReceivePreface) == 16);
static_assert(offsetof(ReceivePreface, version) == 8);
static_assert(offsetof(ReceivePreface, source) == 12);

/// What version 2 added to the preface: who sends, so that the same one may come back.
struct ReceiveSender {
  std::uint64_t number = 0; ///< drawn at random once by a sender; 0: it never comes back
};
static_assert(sizeof(ReceiveSender) == 8);

/// How a connection begins from version 2 on.
struct ReceiveOpening {
  ReceivePreface preface;
  ReceiveSender sender;
};
static_assert(sizeof(ReceiveOpening) == 24);

enum class ReceiveStatus : std::uint8_t {
  send = 0, ///< it is the sender's turn
  no_source = 1, ///< no source at this address has that id
  ended = 2 ///< the source's data have ended
};

/// The answer to a preface from version 2 on, when it is the sender's turn. The connection is
/// closed after any other status.
struct ReceiveAnswer {
  std::array<char, 8> magic{'F', 'A', 'N', 'I', 'N', 'A', 'N', 'S'};
  std::uint16_t version = 2; ///< of the preface
  ReceiveStatus status = ReceiveStatus::send;
  std::uint8_t has_last = 0; ///< 1: `last` counts
  std::uint32_t source = 0;
  /// Event number of the last message that was read whole, as it was sent. From version 3 on: of
  /// the last fragment since the readout unit has joined the run.
  std::uint64_t last = 0;
};
static_assert(sizeof(ReceiveAnswer) == 24);
static_assert(offsetof(ReceiveAnswer, status) == 10);
static_assert(offsetof(ReceiveAnswer, has_last) == 11);
static_assert(offsetof(ReceiveAnswer, source) == 12);
static_assert(offsetof(ReceiveAnswer, last) == 16);

inline constexpr std::uint16_t receive_mark = 0xf4a6; ///< first bytes of each header: a6 f4

/// Event numbers are below this one.
inline constexpr std::uint64_t receive_event_end = std::uint64_t{1} << 63;

enum class ReceiveKind : std::uint8_t {
  fragment = 0,
  skip_to = 1, ///< nothing below `event` will come
  end = 2, ///< the data have ended
  announced = 3, ///< only from the source to the sender: the ledger has all numbers below `event`
  pause = 4 ///< nothing follows for now: no event waits long for this source until it sends again
};

enum ReceiveFlag : std::uint8_t {
  receive_has_crc = 1, ///< crc32c is set
  receive_truncated = 2, ///< the front end cut the fragment short
  receive_bad_number = 4 ///< the front end's own counters disagree
};

struct ReceiveHeader {
  std::uint16_t mark = receive_mark;
  ReceiveKind kind = ReceiveKind::fragment;
  std::uint8_t flags = 0; ///< of ReceiveFlag
  std::uint32_t source = 0;
  std::uint64_t event = 0;
  std::uint32_t size = 0; ///< bytes of the payload that follows, below 256 MiB; 0 if the kind is
                          ///< not fragment
  std::uint32_t crc32c = 0; ///< of the payload
};
static_assert(sizeof(ReceiveHeader) == 24);
static_assert(offsetof(ReceiveHeader, source) == 4);
static_assert(offsetof(ReceiveHeader, event) == 8);
static_assert(offsetof(ReceiveHeader, size) == 16);
static_assert(offsetof(ReceiveHeader, crc32c) == 20);
static_assert(std::is_trivially_copyable_v<ReceiveHeader>);

/// What version 4 added behind a preface, an answer, a header and an acknowledgement. The checksum
/// of a payload does not cover them.
struct OwnChecksum {
  std::uint32_t crc32c = 0; ///< of the structure before it
  std::uint32_t reserved = 0;
};
static_assert(sizeof(OwnChecksum) == 8);

[[nodiscard]] constexpr bool has_answer(std::uint16_t version) { return version >= 2; }
[[nodiscard]] constexpr bool has_acknowledgements(std::uint16_t version) { return version >= 3; }
[[nodiscard]] constexpr bool has_own_checksums(std::uint16_t version) { return version >= 4; }

} // namespace fanin::source
