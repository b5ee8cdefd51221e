#include "fanin/message/gathering_page.hpp"

namespace fanin::message {

bool GatheringPage::open() {
  if (!page_) {
    page_ = pool_->take();
    if (!page_) return false;
    data_ = page_.data();
    start_ = end_ = 0;
  }
  limit_ = std::max(room_end(), end_); // the limit may have been larger when it was filled
  return true;
}

bool GatheringPage::append_header(std::uint32_t payload, std::uint16_t flags) {
  if (limit_ - end_ < sizeof(FrameHeader)) return false;
  const FrameHeader header{0, flags, payload};
  std::memcpy(data_ + end_, &header, sizeof header);
  end_ += static_cast<std::uint32_t>(sizeof header);
  return true;
}

void GatheringPage::release() {
  page_.reset();
  data_ = nullptr;
  start_ = end_ = limit_ = 0;
}

} // namespace fanin::message
