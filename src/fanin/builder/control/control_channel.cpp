#include "fanin/builder/control/control_channel.hpp"

#include <cstring>

#include "fanin/base/assert.hpp"

namespace fanin::builder {

namespace {
constexpr std::uint64_t acknowledge_pages = 16; // received and not acknowledged, at most
} // namespace

void ControlChannel::forget() {
  unacknowledged_.clear();
  deferred_.clear();
  if (pool_ != nullptr) page_.release();
  page_number_ = nullptr;
  unacknowledged_bytes_ = next_ = received_bytes_ = 0;
  acknowledged_ = received_ = received_reported_ = 0;
  skipping_ = failed_ = false;
}

void ControlChannel::begin(net::Link link) {
  forget();
  link_ = link;
}

bool ControlChannel::resume(net::Link link, std::uint64_t received) {
  if (!on_acknowledged(received)) return false;
  link_ = link;
  next_ = 0;
  received_reported_ = received_; // said with what opens the connection
  received_bytes_ = 0;
  return true;
}

void ControlChannel::detach() {
  link_ = {};
  greeting_ = {};
  next_ = 0;
}

bool ControlChannel::make_room(std::size_t size) {
  if (unacknowledged_bytes_ + page_.size() + size > unacknowledged_max()) return false;
  return page_.make_room(size, [this] { seal(); });
}

bool ControlChannel::roomy(std::size_t parts_bytes) {
  FANIN_ASSERT(pool_ == nullptr || parts_bytes <= room_max()); // or there never will be
  return pool_ != nullptr && !failed_ && deferred_.empty() &&
         make_room(parts_bytes + control_body_max + number_max);
}

// Where to write the payload of a frame; null: there is no room.
std::byte* ControlChannel::place(wire::MessageType type, std::size_t size) {
  FANIN_ASSERT(size <= page_.payload_max() - number_max);
  if (!make_room(size + number_max)) return nullptr;
  if (page_.empty()) {
    page_number_ = page_.append(sizeof(wire::Numbered),
                                static_cast<std::uint16_t>(wire::MessageType::numbered));
  }
  return page_.append(size, static_cast<std::uint16_t>(type));
}

std::byte* ControlChannel::reserve(wire::MessageType type, std::size_t size) {
  if (pool_ == nullptr || failed_) return nullptr;
  if (deferred_.empty()) {
    if (std::byte* const at = place(type, size)) return at;
  }
  const std::size_t at = deferred_.size();
  if (at + size > deferred_max) {
    failed_ = true;
    return nullptr;
  }
  deferred_.resize(at + message::frame_size(size));
  return put_header(deferred_.data() + at, type, size);
}

void ControlChannel::append_deferred() {
  std::size_t said = 0;
  while (said < deferred_.size()) {
    message::FrameHeader header;
    std::memcpy(&header, deferred_.data() + said, sizeof header);
    std::byte* const at = place(static_cast<wire::MessageType>(header.type), header.size);
    if (at == nullptr) break;
    std::memcpy(at, deferred_.data() + said + sizeof header, header.size);
    said += sizeof header + header.size;
  }
  if (said > 0)
    deferred_.erase(deferred_.begin(), deferred_.begin() + static_cast<std::ptrdiff_t>(said));
}

// What is in the page gets its number.
void ControlChannel::seal() {
  FANIN_ASSERT(!page_.empty() && page_number_ != nullptr);
  const wire::Numbered number{acknowledged_ + unacknowledged_.size() + 1, received_};
  std::memcpy(page_number_, &number, sizeof number);
  received_reported_ = received_;
  received_bytes_ = 0;
  unacknowledged_bytes_ += page_.size();
  unacknowledged_.push_back(page_.unsent());
  page_.sent();
}

void ControlChannel::flush() {
  if (pool_ == nullptr) return;
  greeting_.flush(); // before others take the page that it waits for
  if (!deferred_.empty()) append_deferred();
  if (!greeting_.sent()) return;
  if (link_ && next_ == unacknowledged_.size() && !page_.empty()) seal();
  while (link_ && next_ < unacknowledged_.size()) {
    const auto outcome = link_.send({&unacknowledged_[next_], 1});
    if (outcome == net::SendOutcome::too_large) failed_ = true;
    if (outcome != net::SendOutcome::accepted) return; // `writable` or `closed` follows
    ++next_;
    if (next_ == unacknowledged_.size() && !page_.empty()) seal();
  }
  if (page_.has_page() && page_.empty() && !page_.shared()) page_.release();
  if (received_ - received_reported_ >= acknowledge_pages ||
      received_bytes_ >= pool_->page_size() / 4) {
    acknowledge();
  }
}

void ControlChannel::acknowledge() {
  if (!link_ || received_ == received_reported_ || !greeting_.sent()) return;
  received_reported_ = received_;
  received_bytes_ = 0;
  greet(link_, wire::Acknowledge{received_});
}

bool ControlChannel::on_acknowledged(std::uint64_t pages) {
  if (pages > acknowledged_ + unacknowledged_.size()) return false;
  FANIN_ASSERT(next_ <= unacknowledged_.size());
  for (; acknowledged_ < pages; ++acknowledged_) {
    unacknowledged_bytes_ -= unacknowledged_.front().size;
    unacknowledged_.pop_front();
    if (next_ > 0) --next_;
  }
  FANIN_ASSERT(!unacknowledged_.empty() || unacknowledged_bytes_ == 0);
  return true;
}

ControlChannel::Taken ControlChannel::take(wire::MessageType type,
                                           std::span<const std::byte> body) {
  wire::MessageReader reader{body};
  if (type == wire::MessageType::acknowledge) {
    wire::Acknowledge acknowledge;
    const bool good = reader.read(acknowledge) && on_acknowledged(acknowledge.received);
    return good ? Taken::done : Taken::bad;
  }
  if (type != wire::MessageType::numbered) {
    received_bytes_ += sizeof(message::FrameHeader) + body.size();
    return skipping_ ? Taken::done : Taken::message;
  }
  wire::Numbered numbered;
  if (!reader.read(numbered) || !on_acknowledged(numbered.received)) return Taken::bad;
  if (numbered.number > received_ + 1) return Taken::bad;
  skipping_ = numbered.number <= received_;
  if (!skipping_) received_ = numbered.number;
  return Taken::done;
}

} // namespace fanin::builder
