/// \file
/// Decodes the messages of one connection, behind its preface, and puts the fragments into the
/// queue. It uses no socket. The bytes come from outside: whatever they are, the result is a
/// fragment, a counted drop, or a fault that ends the connection.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "fanin/base/state.hpp"
#include "fanin/source/event_numbers.hpp"
#include "fanin/source/fragment_queue.hpp"
#include "fanin/source/own_checksum.hpp"
#include "fanin/source/receive_format.hpp"
#include "fanin/source/receive_preface.hpp"
#include "fanin/source/resend_requests.hpp"

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

  /// A message is taken, and is not complete.
  [[nodiscard]] bool within_message() const {
    return gathered_size_ != 0 || step_ == Step::payload || step_ == Step::discard;
  }
  /// The connection has ended. Returns the fault if it ended within a message. The decoder is then
  /// ready for another connection.
  ReceiveFault disconnect(FragmentQueue& queue);
  [[nodiscard]] ReceiveFault fault() const { return fault_; }
  /// As the last header says.
  [[nodiscard]] SourceId named_source() const { return header_.source; }
  /// The sender has sent more after its end of the data. Requires State::end.
  void go_beyond_end() { fault_ = ReceiveFault::after_end; }
  /// The last message, over any connection, said that nothing follows for now.
  [[nodiscard]] bool paused() const { return paused_; }
  /// The readout unit joins a run: what was taken before may come again.
  void begin_run() {
    forget_resent();
    paused_ = false;
  }
  /// It has joined the run at this number: what is below is decided.
  void begin_at(std::uint64_t first) { first_ = first; }
  /// Another sender follows, which does not send again what the earlier one sent.
  void begin_sender() {
    forget_resent();
    sender_ = RestartJudge::Sender::other;
  }
  /// Another connection begins. If its sender is reliable, a header that is damaged ends the
  /// connection before anything in it counts. So does a fragment that is damaged, so that the
  /// sender sends it again; if it was asked often (ResendRequests), the fragment counts as it is.
  void connect(bool reliable) {
    using Sender = RestartJudge::Sender;
    reliable_ = reliable;
    if (!reliable) {
      sender_ = Sender::unknown; // it has no number
    } else if (sender_ != Sender::other) {
      sender_ = Sender::again;
    }
  }
  /// Below this number these repeat what is known, and are left out: fragments below begin_at() or
  /// below what the sender has come to over an earlier connection.
  void leave_out_below(std::uint64_t event) { left_out_end_ = event; }
  /// Fragments that repeat what is known, and were left out.
  [[nodiscard]] std::uint64_t repeats_skipped() const { return repeats_skipped_; }
  [[nodiscard]] std::uint64_t bad_checksums() const { return bad_checksums_; }
  /// Fragments and *skip to*, over all connections, that were taken whole and not left out.
  [[nodiscard]] std::uint64_t new_messages() const { return new_messages_; }

private:
  enum class Step : std::uint8_t {
    header,
    begin, // of a message with a number, for which there may be no room yet
    payload,
    discard, // a payload that is not wanted
    ended
  };
  friend constexpr bool may_follow(Step from, Step to) {
    switch (to) {
    case Step::header: return true;
    case Step::begin:
    case Step::ended: return from == Step::header;
    case Step::payload: return from == Step::begin;
    case Step::discard: return from == Step::begin || from == Step::payload;
    }
    return false;
  }

  // Gathers a header in gathered_; true when it is there.
  bool gather(std::span<const std::byte>& bytes);
  [[nodiscard]] State begin(FragmentQueue& queue);
  void check_header();
  void forget_resent() {
    resent_end_ = 0;
    held_at_disconnect_.reset();
  }
  [[nodiscard]] bool repeats(const FragmentQueue& queue) const;
  [[nodiscard]] bool contradicts(const FragmentQueue& queue) const;
  [[nodiscard]] bool repeats_held(const FragmentQueue& queue) const;
  // The fragment is damaged. True: its sender has to send it again, and the connection ends.
  [[nodiscard]] bool ask_for_it();
  void finish_fragment(FragmentQueue& queue);
  void finish_message();
  void take_payload(std::span<const std::byte>& bytes, FragmentQueue& queue);

  SourceId source_;
  bool check_;
  CheckedState<Step> step_ = Step::header;
  ReceiveFault fault_ = ReceiveFault::none;
  ReceiveHeader header_;
  CheckedBytes<ReceiveHeader> gathered_{};
  bool reliable_ = false; // the sender of this connection
  RestartJudge::Sender sender_ = RestartJudge::Sender::same; // if the queue is to be told of it
  std::size_t gathered_size_ = 0;
  std::uint32_t payload_left_ = 0;
  std::uint32_t crc_ = 0; // of the payload so far, where the queue keeps none
  ResendRequests requests_;
  std::uint64_t bad_checksums_ = 0;
  std::uint64_t new_messages_ = 0;
  std::uint64_t first_ = 0; // the readout unit has joined the run there
  std::uint64_t resent_end_ = 0; // the sender has come up to here over earlier connections
  std::optional<EventNumbers::HeldFragment> held_at_disconnect_; // the sender may send it again
  bool left_out_ = false; // the message
  std::uint64_t repeats_skipped_ = 0;
  std::uint64_t left_out_end_ = 0;
  bool paused_ = false;
};

} // namespace fanin::source
