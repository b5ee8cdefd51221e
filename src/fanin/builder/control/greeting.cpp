#include "fanin/builder/control/greeting.hpp"

#include <cstring>

namespace fanin::builder {

std::byte* Greeting::frame(wire::MessageType type, std::size_t size) {
  const std::size_t taken = message::frame_size(size);
  FANIN_ASSERT(taken <= pool_->page_size() / 2);
  frame_.assign(taken, std::byte{});
  return put_header(frame_.data(), type, size);
}

void Greeting::flush() {
  if (frame_.empty()) return;
  memory::Loan page = pool_->take();
  if (!page) return; // when one is back
  std::memcpy(page.data(), frame_.data(), frame_.size());
  const memory::View view = page.freeze(0, static_cast<std::uint32_t>(frame_.size()));
  switch (link_.send({&view, 1})) {
  case net::SendOutcome::backpressure: return;
  case net::SendOutcome::too_large: failed_ = true; [[fallthrough]];
  case net::SendOutcome::accepted:
  case net::SendOutcome::closed: frame_.clear();
  }
}

} // namespace fanin::builder
