#include "fanin/builder/control/control_batcher.hpp"

namespace fanin::builder {

bool ControlBatcher::make_room(std::size_t size) {
  FANIN_ASSERT(size <= page_.payload_max());
  return page_.make_room(size, [this] { flush(); });
}

std::byte* ControlBatcher::reserve(wire::MessageType type, std::size_t size) {
  if (!link_ || failed_) return nullptr;
  if (!make_room(size)) { // no page, or the peer has not taken what was gathered before
    failed_ = true;
    return nullptr;
  }
  return page_.append(size, static_cast<std::uint16_t>(type));
}

void ControlBatcher::flush() {
  if (!page_.has_page()) return;
  if (page_.empty()) { // idle: the page goes home once all of it is sent
    if (!page_.shared()) page_.release();
    return;
  }
  const memory::View view = page_.unsent();
  switch (link_.send({&view, 1})) {
  case net::SendOutcome::accepted: page_.sent(); break;
  case net::SendOutcome::backpressure: break; // kept; more may be gathered until it is full
  case net::SendOutcome::closed: page_.release(); break;
  case net::SendOutcome::too_large: failed_ = true; break;
  }
}

} // namespace fanin::builder
