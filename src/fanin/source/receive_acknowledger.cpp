#include "fanin/source/receive_acknowledger.hpp"

#include <sys/socket.h>

namespace fanin::source {

void ReceiveAcknowledger::connect(bool reliable) {
  wanted_ = reliable;
  end_said_ = 0;
  dropped_said_ = dropped_;
  sent_ = message_.size();
}

void ReceiveAcknowledger::send(const Descriptor& socket) {
  while (wanted_) {
    if (sent_ == message_.size()) {
      if (end_ <= end_said_ && dropped_ == dropped_said_) return;
      end_said_ = end_;
      dropped_said_ = dropped_;
      message_ = with_own_checksum(ReceiveReply{
          .kind = ReceiveKind::announced, .source = source_, .end = end_, .dropped = dropped()});
      sent_ = 0;
    }
    const ssize_t sent = ::send(socket.get(), message_.data() + sent_, message_.size() - sent_,
                                MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent <= 0) return;
    sent_ += static_cast<std::size_t>(sent);
  }
}

} // namespace fanin::source
