/// \file
/// Decodes the bytes of one connection and puts the fragments into the queue. It uses no socket.
/// The bytes come from outside: whatever they are, the result is a fragment, a counted drop, or a
/// fault that ends the connection.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "fanin/source/fragment_queue.hpp"
#include "fanin/source/receive_format.hpp"

namespace fanin::source {

/// Why this side ended a connection, or did not accept it.
enum class ReceiveFault : std::uint8_t {
  none,
  bad_preface, ///< wrong magic bytes: the peer is no sender of fragments
  other_version, ///< a sender of another version of the format
  other_source, ///< meant for another source
  bad_mark, ///< no header where one must be: bytes are missing, or a size was wrong
  bad_kind, ///< unknown kind or flags
  bad_size, ///< over 256 MiB - 1, or a size where there is no payload
  bad_event, ///< 2^63 or above
  cut_short, ///< the connection ended within a message
  no_preface ///< it was silent, and gave way to another one
};
inline constexpr std::size_t receive_faults = 10;
[[nodiscard]] std::string_view name(ReceiveFault fault);

class ReceiveDecoder {
public:
  /// With `check`, a fragment whose CRC32C differs from the sender's is flagged and counted.
  ReceiveDecoder(SourceId source, bool check) : source_(source), check_(check) {}

  enum class State : std::uint8_t {
    hungry, ///< all bytes were taken
    full, ///< the queue has no room, or does not want the number yet
    fault, ///< the connection has a fault, see fault(); nothing more can be taken
    end ///< the sender said that the data have ended
  };
  struct Taken {
    std::size_t bytes = 0;
    State state = State::hungry;
  };
  /// Takes bytes until one of the states is reached. Offer the rest again later. If the queue has
  /// been emptied meanwhile, the rest of the open fragment is discarded.
  [[nodiscard]] Taken take(std::span<const std::byte> bytes, FragmentQueue& queue);

  /// Memory for the next bytes of the connection, in the page of the open fragment, so that no copy
  /// is needed; empty if there is none. Tell received() how many were put there.
  [[nodiscard]] std::span<std::byte> direct(FragmentQueue& queue);
  void received(std::size_t bytes, FragmentQueue& queue);

  /// The connection has ended. Returns the fault if it ended within a message. The decoder is then
  /// ready for another connection.
  ReceiveFault disconnect(FragmentQueue& queue);
  [[nodiscard]] ReceiveFault fault() const { return fault_; }
  [[nodiscard]] bool introduced() const { return step_ != Step::preface; } ///< a good preface came
  [[nodiscard]] std::uint64_t bad_checksums() const { return bad_checksums_; }

private:
  enum class Step : std::uint8_t { preface, header, begin, payload, discard, ended };

  // Gathers `size` bytes in gathered_; true when they are there.
  bool gather(std::span<const std::byte>& bytes, std::size_t size);
  [[nodiscard]] State begin(FragmentQueue& queue);
  void check_preface();
  void check_header();
  void finish_fragment(FragmentQueue& queue);
  void take_payload(std::span<const std::byte>& bytes, FragmentQueue& queue);

  SourceId source_;
  bool check_;
  Step step_ = Step::preface;
  ReceiveFault fault_ = ReceiveFault::none;
  ReceiveHeader header_;
  std::array<std::byte, sizeof(ReceiveHeader)> gathered_{};
  std::size_t gathered_size_ = 0;
  std::uint32_t payload_left_ = 0;
  std::uint32_t crc_ = 0; // of the payload so far, where the queue keeps none
  std::uint64_t bad_checksums_ = 0;
};

} // namespace fanin::source
