#include "fanin/source/receive_acknowledger.hpp"

namespace fanin::source {

void ReceiveAcknowledger::connect(bool reliable) {
  wanted_ = reliable;
  end_said_ = 0;
  dropped_said_ = dropped_;
  sent_ = message_.size();
}

void ReceiveAcknowledger::send(net::Stream& stream) {
  while (wanted_) {
    if (sent_ == message_.size()) {
      if (end_ <= end_said_ && dropped_ == dropped_said_) return;
      end_said_ = end_;
      dropped_said_ = dropped_;
      message_ = with_own_checksum(ReceiveReply{
          .kind = ReceiveKind::announced, .source = source_, .end = end_, .dropped = dropped()});
      sent_ = 0;
    }
    const net::Transfer written = stream.write(std::span(message_).subspan(sent_));
    if (written.outcome != net::Transfer::Outcome::done) return;
    sent_ += written.bytes;
  }
}

} // namespace fanin::source
