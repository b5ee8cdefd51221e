/// \file
/// Tells the senders of a `receive` source that want to know it up to which number all is
/// announced: from then on the ledger of the run has it, and they may forget it. Only the latest
/// number counts, so that a sender which does not read holds up nothing.
#pragma once

#include <cstddef>
#include <cstdint>

#include "fanin/base/descriptor.hpp"
#include "fanin/base/identity.hpp"
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

  /// Another connection, whose sender speaks this version of the format. It knows of no
  /// acknowledgement yet.
  void connect(std::uint16_t version);
  [[nodiscard]] bool wanted() const { return wanted_; }
  [[nodiscard]] bool has_news() const { return wanted_ && end_ > acknowledged_; }
  /// Sends the number if it is new, as far as the socket has room. Call it after announced(), and
  /// when the socket has room again. The reader of the connection notices when it is lost.
  void send(const Descriptor& socket);

private:
  SourceId source_;
  bool wanted_ = false;
  std::uint64_t end_ = 0;
  std::uint64_t acknowledged_ = 0; // over this connection
  CheckedBytes<ReceiveHeader> message_{};
  std::size_t size_ = 0; // of message_, in this version
  std::size_t sent_ = 0; // of message_
};

} // namespace fanin::source
