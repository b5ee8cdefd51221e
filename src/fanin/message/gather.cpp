#include "fanin/message/gather.hpp"

namespace fanin::message {

std::byte* Gather::reserve(std::size_t size) {
  FANIN_ASSERT(size <= capacity_);
  if (!link_ || failed_) return nullptr;
  if (page_ && filled_ + size > capacity_) flush();
  if (!page_) {
    page_ = pool_->take();
    filled_ = 0;
  }
  if (!page_ || filled_ + size > capacity_) { // no page, or the peer has not taken the last one
    failed_ = true;
    return nullptr;
  }
  std::byte* at = page_.data() + filled_;
  filled_ += static_cast<std::uint32_t>(size);
  return at;
}

void Gather::flush() {
  if (!page_ || filled_ == 0) return;
  const memory::View view = page_.freeze(0, filled_);
  switch (link_.send({&view, 1})) {
  case net::SendOutcome::accepted: page_.reset(); break;
  case net::SendOutcome::backpressure: break; // kept; more may be gathered until it is full
  case net::SendOutcome::closed: page_.reset(); break;
  case net::SendOutcome::too_large: failed_ = true; break;
  }
}

} // namespace fanin::message
