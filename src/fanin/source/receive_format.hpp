/// \file
/// The bytes of a connection to a `receive` source: one preface, then messages. A message is a
/// header and, for a fragment, its payload. A plain sender only sends. A reliable one has a number,
/// is answered, and is told what is announced; an OwnChecksum follows its preface, each header and
/// each reply. Little-endian. docs/receive-format.md describes them.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace fanin::source {

static_assert(std::endian::native == std::endian::little, "these structures are the bytes");

inline constexpr std::uint16_t receive_version = 1;

/// Two bits differ: a damaged one does not make a plain sender of a reliable one.
enum class ReceiveForm : std::uint16_t {
  plain = 0,
  reliable = 3,
  group = 5 ///< reliable, and its preface names its run
};

/// The preface of a plain sender, and the first bytes of that of a reliable one.
struct ReceivePreface {
  std::array<char, 8> magic{'F', 'A', 'N', 'I', 'N', 'R', 'C', 'V'};
  std::uint16_t version = receive_version;
  ReceiveForm form = ReceiveForm::plain;
  std::uint32_t source = 0;
};
static_assert(sizeof(ReceivePreface) == 16);
static_assert(offsetof(ReceivePreface, version) == 8);
static_assert(offsetof(ReceivePreface, form) == 10);
static_assert(offsetof(ReceivePreface, source) == 12);

/// The preface of a reliable sender.
struct ReliablePreface {
  ReceivePreface common{.form = ReceiveForm::reliable};
  std::uint64_t sender = 0; ///< not 0: drawn at random when its program starts
};
static_assert(sizeof(ReliablePreface) == 24);
static_assert(offsetof(ReliablePreface, sender) == 16);

/// The preface of a builder unit of the first of two stages.
struct GroupPreface {
  ReliablePreface reliable{.common = {.form = ReceiveForm::group}};
  std::uint64_t run_id = 0; ///< random; equal for all builder units of the run
  std::uint32_t run = 0; ///< its number
  std::uint32_t reserved = 0;
};
static_assert(sizeof(GroupPreface) == 40);
static_assert(offsetof(GroupPreface, run_id) == 24);
static_assert(offsetof(GroupPreface, run) == 32);

inline constexpr std::uint16_t receive_mark = 0xf4a6; ///< first bytes of each header: a6 f4

enum class ReceiveKind : std::uint8_t {
  fragment = 0,
  skip_to = 1, ///< nothing below `event` will come
  end = 2, ///< the data have ended
  announced = 3, ///< only of a ReceiveReply: the ledger has all numbers below `end`
  pause = 4, ///< nothing follows for now: no event waits long for this source until it sends again
  answer = 5 ///< only of a ReceiveReply: to the preface
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
  std::uint32_t size = 0; ///< bytes of the payload that follows, below 128 MiB; 0 if the kind is
                          ///< not fragment
  std::uint32_t crc32c = 0; ///< of the payload
};
static_assert(sizeof(ReceiveHeader) == 24);
static_assert(offsetof(ReceiveHeader, source) == 4);
static_assert(offsetof(ReceiveHeader, event) == 8);
static_assert(offsetof(ReceiveHeader, size) == 16);
static_assert(offsetof(ReceiveHeader, crc32c) == 20);
static_assert(std::is_trivially_copyable_v<ReceiveHeader>);

enum class ReceiveStatus : std::uint8_t {
  send = 0, ///< it is the sender's turn
  no_source = 1, ///< no source at this address has that id
  ended = 2, ///< the source's data have ended
  other_run = 3 ///< the source is in another run than the sender; `end` is its number
};

/// What a reliable sender is told: the answer to its preface when it is its turn, then
/// acknowledgements.
struct ReceiveReply {
  std::uint16_t mark = receive_mark;
  ReceiveKind kind = ReceiveKind::answer; ///< or announced
  ReceiveStatus status = ReceiveStatus::send; ///< after any other one the connection is closed
  std::uint32_t source = 0;
  /// Of an answer: the number behind the last fragment that was read since the readout unit has
  /// joined the run, as it was sent; 0: none was.
  std::uint64_t end = 0;
  std::uint64_t dropped = 0; ///< fragments of this sender that were dropped, or late
};
static_assert(sizeof(ReceiveReply) == 24);
static_assert(offsetof(ReceiveReply, status) == 3);
static_assert(offsetof(ReceiveReply, source) == 4);
static_assert(offsetof(ReceiveReply, end) == 8);
static_assert(offsetof(ReceiveReply, dropped) == 16);

/// What follows each structure of a reliable connection: the checksum of a payload does not cover
/// them.
struct OwnChecksum {
  std::uint32_t crc32c = 0; ///< of the structure before it
  std::uint32_t reserved = 0;
};
static_assert(sizeof(OwnChecksum) == 8);

} // namespace fanin::source
