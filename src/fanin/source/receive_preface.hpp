/// \file
/// Reads the preface of a connection to a `receive` source, which says for whom it is. The bytes
/// come from outside: whatever they are, the result is a preface or a fault.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "fanin/base/identity.hpp"
#include "fanin/source/own_checksum.hpp"
#include "fanin/source/receive_format.hpp"

namespace fanin::source {

/// Why this side ended a connection, or did not accept it.
enum class ReceiveFault : std::uint8_t {
  none,
  bad_preface, ///< wrong magic bytes, form, number or checksum: the peer is no sender of fragments,
               ///< or the preface was damaged on the way
  other_version, ///< a sender of another version of the format
  other_source, ///< meant for another source
  bad_mark, ///< no header where one must be: bytes are missing, or a size was wrong
  bad_kind, ///< unknown kind or flags
  bad_size, ///< over 128 MiB - 1, or a size where there is no payload
  cut_short, ///< the connection ended within a message
  no_preface, ///< it was silent, and gave way to another one
  not_allowed, ///< its address is not on the source's list
  damaged, ///< the checksum of a header differs, or that of a fragment that the sender has still
  after_end, ///< bytes follow the end of the data
  other_run ///< it names another run than that of the source
};
inline constexpr std::size_t receive_faults = 13;
[[nodiscard]] std::string_view name(ReceiveFault fault);
/// For the log: the name, and what has happened in plain words.
[[nodiscard]] std::string described(ReceiveFault fault);

class PrefaceReader {
public:
  /// Where the next bytes of the connection belong. No byte behind the preface fits in.
  [[nodiscard]] std::span<std::byte> room();
  void received(std::size_t bytes);

  [[nodiscard]] bool begun() const { return size_ != 0; }
  /// All is there, or a fault is.
  [[nodiscard]] bool complete() const { return size_ == wanted_; }
  [[nodiscard]] ReceiveFault fault() const { return fault_; } ///< bad_preface, other_version
  [[nodiscard]] SourceId source() const { return common().source; }
  [[nodiscard]] std::uint16_t version() const { return common().version; }
  /// 0: it is a plain one.
  [[nodiscard]] std::uint64_t sender() const { return preface_.reliable.sender; }
  /// Of a group; its number is 0 for others.
  [[nodiscard]] RunIdentity run() const {
    if (common().form != ReceiveForm::group) return {};
    return {.number = preface_.run, .id = preface_.run_id};
  }

private:
  [[nodiscard]] const ReceivePreface& common() const { return preface_.reliable.common; }

  CheckedBytes<GroupPreface> bytes_{};
  std::size_t size_ = 0;
  std::size_t wanted_ = sizeof(ReceivePreface);
  GroupPreface preface_;
  ReceiveFault fault_ = ReceiveFault::none;
};

} // namespace fanin::source
