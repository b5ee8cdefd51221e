#include "fanin/message/gather.hpp"

namespace fanin::message {

bool Gather::make_room(std::size_t size) {
  FANIN_ASSERT(size <= capacity_);
  const auto fits = [&] {
    return end_ - start_ + size <= capacity_ && end_ + size <= page_.size();
  };
  if (page_ && !fits()) flush();
  if (page_ && !fits() && start_ == end_) page_.reset();
  if (!page_) {
    page_ = pool_->take();
    start_ = end_ = 0;
  }
  return page_ && fits();
}

std::byte* Gather::reserve(std::size_t size) {
  if (!link_ || failed_) return nullptr;
  if (!make_room(size)) { // no page, or the peer has not taken what was gathered before
    failed_ = true;
    return nullptr;
  }
  std::byte* at = page_.data() + end_;
  end_ += static_cast<std::uint32_t>(size);
  return at;
}

void Gather::flush() {
  if (!page_) return;
  if (start_ == end_) { // idle: the page goes home once all of it is sent
    if (page_.page()->references == 1) page_.reset();
    return;
  }
  const memory::View view = page_.freeze(start_, end_ - start_);
  switch (link_.send({&view, 1})) {
  case net::SendOutcome::accepted: start_ = end_; break;
  case net::SendOutcome::backpressure: break; // kept; more may be gathered until it is full
  case net::SendOutcome::closed: page_.reset(); break;
  case net::SendOutcome::too_large: failed_ = true; break;
  }
}

} // namespace fanin::message
