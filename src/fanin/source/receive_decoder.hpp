/// \file
/// Decodes the messages of one connection, behind its preface, and puts the fragments into the
/// queue. It uses no socket. The bytes come from outside: whatever they are, the result is a
/// fragment, a counted drop, or a fault that ends the connection.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "fanin/source/fragment_queue.hpp"
#include "fanin/source/receive_format.hpp"
#include "fanin/source/receive_hello.hpp"

namespace fanin::source {

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
  /// The event number of the last message that was taken whole, as it was sent.
  [[nodiscard]] std::optional<std::uint64_t> last_event() const { return last_event_; }
  /// The same of the last fragment.
  [[nodiscard]] std::optional<std::uint64_t> last_fragment() const { return last_fragment_; }
  /// The last message, over any connection, said that nothing follows for now.
  [[nodiscard]] bool paused() const { return paused_; }
  /// The readout unit joins a run, in which all below `first` is decided: senders may send
  /// fragments again that were taken before.
  void begin_run(std::uint64_t first) {
    last_fragment_.reset();
    resent_end_ = first;
    paused_ = false;
  }
  /// Below this number a fragment that an earlier connection of this run has come to, and what a
  /// sender says to skip, repeat what is known: they are left out, and not counted.
  void leave_out_below(std::uint64_t event) { left_out_end_ = event; }
  [[nodiscard]] std::uint64_t bad_checksums() const { return bad_checksums_; }

private:
  enum class Step : std::uint8_t { header, begin, payload, discard, ended };

  // Gathers a header in gathered_; true when it is there.
  bool gather(std::span<const std::byte>& bytes);
  [[nodiscard]] State begin(FragmentQueue& queue);
  void check_header();
  [[nodiscard]] Step step_behind_header() const;
  void finish_fragment(FragmentQueue& queue);
  void finish_message();
  void take_payload(std::span<const std::byte>& bytes, FragmentQueue& queue);

  SourceId source_;
  bool check_;
  Step step_ = Step::header;
  ReceiveFault fault_ = ReceiveFault::none;
  ReceiveHeader header_;
  std::array<std::byte, sizeof(ReceiveHeader)> gathered_{};
  std::size_t gathered_size_ = 0;
  std::uint32_t payload_left_ = 0;
  std::uint32_t crc_ = 0; // of the payload so far, where the queue keeps none
  std::uint64_t bad_checksums_ = 0;
  std::optional<std::uint64_t> last_event_;
  std::optional<std::uint64_t> last_fragment_;
  std::uint64_t resent_end_ = 0; // to here earlier connections of this run have come
  std::uint64_t left_out_end_ = 0;
  bool paused_ = false;
};

} // namespace fanin::source
