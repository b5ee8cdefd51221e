#include "fanin/source/receive_acknowledger.hpp"

#include <sys/socket.h>

namespace fanin::source {

void ReceiveAcknowledger::connect(std::uint16_t version) {
  wanted_ = has_acknowledgements(version);
  acknowledged_ = 0;
  size_ = size_in<ReceiveHeader>(version);
  sent_ = size_;
}

void ReceiveAcknowledger::send(const Descriptor& socket) {
  while (wanted_) {
    if (sent_ == size_) {
      if (end_ <= acknowledged_) return;
      acknowledged_ = end_;
      message_ = with_own_checksum(
          ReceiveHeader{.kind = ReceiveKind::announced, .source = source_, .event = end_});
      sent_ = 0;
    }
    const ssize_t sent =
        ::send(socket.get(), message_.data() + sent_, size_ - sent_, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent <= 0) return;
    sent_ += static_cast<std::size_t>(sent);
  }
}

} // namespace fanin::source
