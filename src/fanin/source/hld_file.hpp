/// \file
/// Decodes the list-mode files (.hld) of the HADES and TRB3 event builders. A file is a chain of
/// events. An event has subevents, a subevent has endpoint blocks; a block is what one board sent
/// for one trigger. Every length is checked; each header has its own byte order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "fanin/base/result.hpp"
#include "fanin/source/file_window.hpp"

namespace fanin::source {

/// Address of the trailer that an event builder adds at the end of a subevent; not an endpoint.
inline constexpr std::uint16_t hld_trailer_address = 0x5555;

struct HldEvent {
  std::uint64_t offset = 0; ///< in the file
  std::uint32_t sequence = 0; ///< event number given by the recording event builder
};

struct HldSubevent {
  std::uint64_t offset = 0;
  std::uint32_t trigger = 0; ///< trigger number, 24 bits
  bool big_endian = false;
};

struct HldBlock {
  std::uint64_t offset = 0;
  std::uint16_t address = 0; ///< of the endpoint
  std::span<const std::byte> bytes; ///< head word and words as in the file; until the next call
};

/// Reads a file from front to back. After an error its position does not change.
class HldReader {
public:
  explicit HldReader(FileWindow file) : file_(std::move(file)) {}

  /// Moves to the next event, which may have no subevents (start and end of a run). False: the end
  /// of the file. Errors: malformed with path and offset, internal.
  [[nodiscard]] Result<bool> next_event();
  /// Moves to the next block of the event, over all its subevents. False: there are no more in this
  /// event.
  [[nodiscard]] Result<bool> next_block();
  void rewind() { next_event_ = next_subevent_ = event_end_ = next_block_ = subevent_end_ = 0; }

  [[nodiscard]] const HldEvent& event() const { return event_; }
  [[nodiscard]] const HldSubevent& subevent() const { return subevent_; }
  [[nodiscard]] const HldBlock& block() const { return block_; }
  [[nodiscard]] const FileWindow& file() const { return file_; }
  [[nodiscard]] std::uint64_t position() const { return next_event_; } ///< bytes of events so far

private:
  [[nodiscard]] Result<bool> next_subevent();
  [[nodiscard]] Result<> check_decoding(std::uint64_t offset, std::uint32_t decoding) const;

  FileWindow file_;
  HldEvent event_;
  HldSubevent subevent_;
  HldBlock block_;
  std::span<const std::byte> bytes_; // of the event
  // Offsets in the file:
  std::uint64_t next_event_ = 0;
  std::uint64_t event_end_ = 0;
  std::uint64_t next_subevent_ = 0;
  std::uint64_t subevent_end_ = 0;
  std::uint64_t next_block_ = 0;
};

} // namespace fanin::source
