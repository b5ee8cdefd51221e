#include "fanin/source/receive_acknowledger.hpp"

#include <sys/socket.h>

#include <cstring>

namespace fanin::source {

void ReceiveAcknowledger::connect(bool wanted) {
  wanted_ = wanted;
  acknowledged_ = 0;
  sent_ = message_.size();
}

void ReceiveAcknowledger::send(const Descriptor& socket) {
  while (wanted_) {
    if (sent_ == message_.size()) {
      if (end_ <= acknowledged_) return;
      acknowledged_ = end_;
      const ReceiveHeader header{.kind = ReceiveKind::announced, .source = source_, .event = end_};
      std::memcpy(message_.data(), &header, sizeof header);
      sent_ = 0;
    }
    const ssize_t sent = ::send(socket.get(), message_.data() + sent_, message_.size() - sent_,
                                MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent <= 0) return;
    sent_ += static_cast<std::size_t>(sent);
  }
}

} // namespace fanin::source
