#include "fanin/net/tcp/stream_receiver.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "fanin/base/assert.hpp"

namespace fanin::net::tcp {
namespace {

// How far a read goes beyond the message that is under way, if that is not small: enough for the
// header and a small message behind it. Also the least for small ones.
constexpr std::uint32_t read_ahead_min = 8192;
// The free end of a page is read into down to this size; what remains is less than 1 % of a page.
constexpr std::uint32_t room_min = 256;

} // namespace

StreamReceiver::Step StreamReceiver::next(memory::View& message) {
  while (true) {
    switch (phase_) {
    case Phase::preface: return step_preface();
    case Phase::prefix:
      if (const auto step = step_prefix()) return *step;
      break;
    case Phase::payload: return step_payload(message);
    case Phase::taken: take_ahead(); return parse_taken();
    case Phase::over: return reason_ == CloseReason::local ? Step::ended : Step::failed;
    }
  }
}

StreamReceiver::Step StreamReceiver::step_preface() {
  if (!may_be_preface(std::span(prefix_).first(prefix_have_))) {
    return fail(CloseReason::protocol_violation);
  }
  if (prefix_have_ < preface_size) return Step::need_bytes;
  peer_ = decode_preface(prefix_);
  if (peer_.version != protocol_version || !peer_.same_byte_order) {
    return fail(CloseReason::version_mismatch);
  }
  expect_prefix(0);
  phase_ = Phase::prefix;
  return Step::opened;
}

// The part of prefix_ that was read ahead.
void StreamReceiver::take_ahead() {
  const std::uint32_t take = std::min(prefix_need_ - prefix_have_, ahead_end_ - ahead_at_);
  if (take > 0) {
    std::memcpy(prefix_.data() + prefix_have_, ahead_.data() + ahead_at_, take);
    prefix_have_ += take;
    ahead_at_ += take;
  }
  if (ahead_ && ahead_at_ == ahead_end_) give_back_ahead();
}

// None: a message begins, or what stands behind the last header.
std::optional<StreamReceiver::Step> StreamReceiver::step_prefix() {
  take_ahead();
  return parse_prefix();
}

std::optional<StreamReceiver::Step> StreamReceiver::parse_prefix() {
  if (prefix_have_ < prefix_need_) return Step::need_bytes;
  std::uint32_t length = 0;
  const std::span<const std::byte, header_size> header(prefix_.data() + prefix_need_ - header_size,
                                                       header_size);
  if (!decode_header(header, length)) return fail(CloseReason::protocol_violation);
  if (length == end_of_stream) {
    phase_ = Phase::taken;
    prefix_have_ = 0;
    prefix_need_ = taken_size;
    return {};
  }
  if (length > max_message_) return fail(CloseReason::message_too_large);
  phase_ = Phase::payload;
  expect_prefix(length);
  length_ = length;
  have_ = have_at_check_ = 0;
  return {};
}

StreamReceiver::Step StreamReceiver::parse_taken() {
  if (prefix_have_ < prefix_need_) return Step::need_bytes;
  peer_has_taken_ =
      decode_taken(std::span<const std::byte, taken_size>(prefix_.data(), taken_size));
  reset();
  return Step::ended;
}

StreamReceiver::Step StreamReceiver::step_payload(memory::View& message) {
  if (length_ == 0) {
    message = {};
    phase_ = Phase::prefix;
    return Step::message;
  }
  if (!may_take()) return Step::starved;
  if (!region_ && ahead_) {
    if (ahead_end_ - ahead_at_ >= length_) { // complete where it lies
      message = ahead_.freeze(ahead_at_, length_);
      ahead_at_ += length_;
      phase_ = Phase::prefix;
      return Step::message;
    }
    place_beginning();
  }
  if (have_ < length_) return Step::need_bytes;
  message = region_.freeze(region_at_, length_);
  region_.reset();
  phase_ = Phase::prefix;
  return Step::message;
}

// Reserves the region of the current message around its beginning, which was read ahead, or
// elsewhere if the page ends too early. Where the pool has no page, the beginning waits on the
// heap: to keep the end of a page for it would pin that page, and all pages of a pool could be
// pinned so.
void StreamReceiver::place_beginning() {
  const std::uint32_t available = ahead_end_ - ahead_at_;
  if (ahead_.size() - ahead_at_ >= length_) {
    region_at_ = ahead_at_;
    region_ = memory::Loan{ahead_.page()};
    filler_->give_back(std::move(ahead_), region_at_ + length_);
  } else {
    const std::byte* const beginning = ahead_.data() + ahead_at_;
    if (claim_region()) {
      std::memcpy(region_.data() + region_at_, beginning, available);
    } else {
      save(beginning, available);
    }
    filler_->give_back(std::move(ahead_), ahead_at_);
  }
  have_ = available;
  ahead_at_ = ahead_end_ = 0;
}

void StreamReceiver::save(const std::byte* beginning, std::uint32_t size) {
  if (size == 0) return;
  saved_ = std::make_unique_for_overwrite<std::byte[]>(size);
  std::memcpy(saved_.get(), beginning, size);
}

bool StreamReceiver::give_up_region(bool check_stall) {
  if (phase_ != Phase::payload || !region_ || ahead_ || have_ == length_) return false;
  const std::uint32_t hardly = filler_->pool().page_size() / 16;
  const bool stalls = check_stall && have_ - std::exchange(have_at_check_, have_) <= hardly;
  if (have_ > hardly && !stalls) return false;
  save(region_.data() + region_at_, have_);
  region_.reset();
  return true;
}

bool StreamReceiver::claim_region() {
  PageFiller::Room room = filler_->reserve(length_);
  if (!room.page) return false;
  region_at_ = room.offset;
  region_ = memory::Loan{room.page.page()};
  filler_->give_back(std::move(room.page), region_at_ + length_);
  if (saved_) std::memcpy(region_.data() + region_at_, saved_.get(), have_);
  saved_.reset();
  return true;
}

// From here on prefix_ is for what comes after a message of `length`, which may be read with its
// end.
void StreamReceiver::expect_prefix(std::uint32_t length) {
  prefix_have_ = 0;
  prefix_need_ = padding_after(length) + header_size;
}

void StreamReceiver::give_back_ahead() {
  filler_->give_back(std::move(ahead_), ahead_at_);
  ahead_at_ = ahead_end_ = 0;
}

StreamReceiver::Step StreamReceiver::fail(CloseReason reason) {
  reset();
  reason_ = reason;
  return Step::failed;
}

void StreamReceiver::reset() {
  if (ahead_) give_back_ahead();
  region_.reset();
  saved_.reset();
  phase_ = Phase::over;
}

void StreamReceiver::take_no_more() {
  region_.reset();
  saved_.reset();
  if (!ahead_) return;
  const auto ahead = std::span(ahead_.data() + ahead_at_, ahead_end_ - ahead_at_);
  (void)discard(ahead); // again, if it finds the end
  if (ahead_) give_back_ahead();
}

StreamReceiver::Step StreamReceiver::discard(std::span<const std::byte> bytes) {
  const auto cut = [&bytes](std::uint32_t most) {
    const auto front = bytes.first(std::min<std::size_t>(most, bytes.size()));
    bytes = bytes.subspan(front.size());
    return front;
  };
  while (phase_ != Phase::over) {
    if (phase_ == Phase::payload) {
      have_ += static_cast<std::uint32_t>(cut(length_ - have_).size());
      if (have_ < length_) return Step::need_bytes;
      phase_ = Phase::prefix;
    }
    const auto front = cut(prefix_need_ - prefix_have_);
    std::ranges::copy(front, prefix_.begin() + prefix_have_);
    prefix_have_ += static_cast<std::uint32_t>(front.size());
    const std::optional<Step> step = phase_ == Phase::taken ? parse_taken() : parse_prefix();
    if (step) return *step;
  }
  return reason_ == CloseReason::local ? Step::ended : Step::failed;
}

// A read costs as much as copying some KiB, so small messages are read many at a time. The price is
// that the beginning of a message at the end of a page is moved: at most 1/16 of a page for each
// page.
std::uint32_t StreamReceiver::read_ahead() const {
  const std::uint32_t page = filler_->pool().page_size();
  return length_ <= page / 16 ? std::max(page / 4, read_ahead_min) : read_ahead_min;
}

std::size_t StreamReceiver::prepare(std::span<iovec, pieces_max> pieces) {
  FANIN_ASSERT(!ahead_ && phase_ != Phase::over);
  std::size_t count = 0;
  const auto add = [&](std::byte* to, std::uint32_t size) { pieces[count++] = {to, size}; };
  std::uint32_t rest = 0;
  if (phase_ == Phase::payload) {
    if (!region_ && !claim_region()) return 0;
    rest = length_ - have_;
    add(region_.data() + region_at_ + have_, rest);
  }
  add(prefix_.data() + prefix_have_, prefix_need_ - prefix_have_);
  const std::uint32_t ahead = read_ahead();
  if (phase_ == Phase::preface || rest >= ahead || !identified_) return count;
  PageFiller::Room room = filler_->reserve(room_min);
  if (!room.page) return count; // the header alone, then
  add(room.page.data() + room.offset, std::min(ahead, room.page.size() - room.offset));
  ahead_ = std::move(room.page);
  ahead_at_ = ahead_end_ = room.offset;
  return count;
}

void StreamReceiver::received(std::size_t bytes) {
  auto left = static_cast<std::uint32_t>(bytes);
  if (phase_ == Phase::payload) {
    const std::uint32_t take = std::min(left, length_ - have_);
    have_ += take;
    left -= take;
  }
  const std::uint32_t take = std::min(left, prefix_need_ - prefix_have_);
  prefix_have_ += take;
  left -= take;
  FANIN_ASSERT(left == 0 || (ahead_ && left <= ahead_.size() - ahead_end_));
  if (!ahead_) return;
  ahead_end_ += left;
  if (left == 0) give_back_ahead();
}

} // namespace fanin::net::tcp
