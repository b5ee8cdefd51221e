/// \file
/// Tells a reliable sender of a `receive` source up to which number all is announced: from then on
/// the ledger of the run has it, and the sender may forget it; and how many of its fragments were
/// dropped or late. Only the latest numbers count, so that a sender which does not read holds up
/// nothing.
#pragma once

#include <cstddef>
#include <cstdint>

#include "fanin/base/identity.hpp"
#include "fanin/net/stream/stream.hpp"
#include "fanin/source/own_checksum.hpp"

namespace fanin::source {

class ReceiveAcknowledger {
public:
  explicit ReceiveAcknowledger(SourceId source) : source_(source) {}

  /// A run begins, or is joined: all below `first` is decided.
  void start(std::uint64_t first) { end_ = first; }
  /// All below `end` is announced.
  void announced(std::uint64_t end) {
    if (end > end_) end_ = end;
  }
  [[nodiscard]] std::uint64_t end() const { return end_; }
  /// So many fragments of the source were dropped or late, from whichever sender.
  void set_dropped(std::uint64_t count) { dropped_ = count; }
  /// Those of the sender.
  [[nodiscard]] std::uint64_t dropped() const { return dropped_ - dropped_before_; }
  /// Another sender follows.
  void begin_sender() { dropped_before_ = dropped_; }

  /// Another connection, whose sender was answered and knows of no acknowledgement yet; a plain one
  /// is told nothing.
  void connect(bool reliable);
  /// Sends the numbers if they are new, as far as the stream has room. Call it when they may have
  /// changed, and when the stream has room again. The reader of the connection notices when it is
  /// lost.
  void send(net::Stream& stream);

private:
  SourceId source_;
  bool wanted_ = false;
  std::uint64_t end_ = 0;
  std::uint64_t end_said_ = 0; // over this connection
  std::uint64_t dropped_ = 0;
  std::uint64_t dropped_before_ = 0; // of other senders
  std::uint64_t dropped_said_ = 0; // likewise with those of other senders
  CheckedBytes<ReceiveReply> message_{};
  std::size_t sent_ = 0; // of message_
};

} // namespace fanin::source
