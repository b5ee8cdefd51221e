#include "fanin/source/receive_decoder.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "fanin/memory/copy.hpp"

namespace fanin::source {
namespace {
constexpr std::uint8_t flags_known = receive_has_crc | receive_truncated | receive_bad_number;

constexpr bool has_number(ReceiveKind kind) {
  return kind == ReceiveKind::fragment || kind == ReceiveKind::skip_to;
}

// As the source counts.
std::uint64_t reached_end(const FragmentQueue& queue) {
  const EventNumber end = queue.numbers().reached_end();
  return end == 0 ? 0 : queue.numbers().counter_of(end);
}
} // namespace

bool ReceiveDecoder::gather(std::span<const std::byte>& bytes) {
  const std::size_t size = reliable_ ? gathered_.size() : sizeof(ReceiveHeader);
  const std::size_t taken = std::min(bytes.size(), size - gathered_size_);
  if (taken != 0) std::memcpy(gathered_.data() + gathered_size_, bytes.data(), taken);
  bytes = bytes.subspan(taken);
  gathered_size_ += taken;
  if (gathered_size_ < size) return false;
  gathered_size_ = 0;
  return true;
}

void ReceiveDecoder::check_header() {
  std::memcpy(&header_, gathered_.data(), sizeof header_);
  paused_ = false; // something has followed, whatever it is
  if (header_.mark != receive_mark) {
    fault_ = ReceiveFault::bad_mark;
  } else if (reliable_ && !own_checksum_fits(gathered_)) {
    fault_ = ReceiveFault::damaged;
  } else if (header_.kind > ReceiveKind::pause ||
             header_.kind == ReceiveKind::announced || // senders do not say it
             (header_.flags & ~flags_known) != 0) {
    fault_ = ReceiveFault::bad_kind;
  } else if (header_.source != source_) {
    fault_ = ReceiveFault::other_source;
  } else if (header_.size > wire::fragment_size_mask ||
             (header_.kind != ReceiveKind::fragment && header_.size != 0)) {
    fault_ = ReceiveFault::bad_size;
  } else {
    paused_ = header_.kind == ReceiveKind::pause;
    if (has_number(header_.kind)) step_ = Step::begin;
    if (header_.kind == ReceiveKind::end) step_ = Step::ended;
  }
}

// The fragment that was held when the connection ended is sent again, and may be taken meanwhile.
bool ReceiveDecoder::repeats_held(const FragmentQueue& queue) const {
  const auto& held = held_at_disconnect_;
  if (!held || header_.event != held->counter) return false;
  const bool answered = queue.numbered() && queue.next_event() > held->event;
  return queue.numbers().held() == held->event || (!held->fell && answered);
}

// The numbers of a source may have fallen since an earlier connection. When it has gone on it sends
// nothing again.
bool ReceiveDecoder::repeats(const FragmentQueue& queue) const {
  if (repeats_held(queue)) return true;
  if (header_.event >= left_out_end_) return false;
  const std::uint64_t end = reached_end(queue);
  const std::uint64_t held_end = held_at_disconnect_ ? held_at_disconnect_->counter + 1 : 0;
  const bool gone_on = end > std::max(resent_end_, held_end);
  return header_.event < first_ || (header_.event < std::min(resent_end_, end) && !gone_on);
}

// Without a checksum nothing is known of the data.
bool ReceiveDecoder::contradicts(const FragmentQueue& queue) const {
  return (header_.flags & receive_has_crc) != 0 &&
         queue.numbers().contradicts(header_.event, {header_.size, header_.crc32c});
}

ReceiveDecoder::State ReceiveDecoder::begin(FragmentQueue& queue) {
  const auto sender = std::exchange(sender_, RestartJudge::Sender::same);
  if (sender != RestartJudge::Sender::same) queue.numbers().begin_sender(sender);
  if (header_.kind == ReceiveKind::skip_to) {
    left_out_ = header_.event < left_out_end_;
    if (!queue.skip_to(header_.event)) return State::full;
    finish_message();
    return State::hungry;
  }
  left_out_ = repeats(queue) && !contradicts(queue);
  const WriteOutcome outcome =
      left_out_ ? WriteOutcome::rejected : queue.begin(header_.event, header_.size);
  if (outcome == WriteOutcome::full) return State::full;
  repeats_skipped_ += left_out_;
  if (!left_out_) held_at_disconnect_.reset(); // what follows was not sent before
  payload_left_ = header_.size;
  crc_ = 0;
  step_ = outcome == WriteOutcome::ok ? Step::payload : Step::discard;
  if (payload_left_ == 0) step_ == Step::payload ? finish_fragment(queue) : finish_message();
  return State::hungry;
}

bool ReceiveDecoder::ask_for_it() {
  if (!reliable_ || !requests_.ask(header_.event)) return false;
  fault_ = ReceiveFault::damaged;
  return true;
}

void ReceiveDecoder::finish_fragment(FragmentQueue& queue) {
  std::uint32_t flags = 0;
  if ((header_.flags & receive_truncated) != 0) flags |= wire::fragment_truncated;
  if ((header_.flags & receive_bad_number) != 0) flags |= wire::fragment_bad_number;
  if (check_ && (header_.flags & receive_has_crc) != 0) {
    const std::uint32_t crc = queue.options().checksum ? queue.crc32c() : crc_;
    if (crc == header_.crc32c) {
      requests_.right();
    } else if (ask_for_it()) {
      queue.cancel();
      step_ = Step::header;
      return;
    } else {
      flags |= wire::fragment_bad_checksum;
      ++bad_checksums_;
    }
  }
  queue.end(flags);
  finish_message();
}

void ReceiveDecoder::finish_message() {
  if (!left_out_) ++new_messages_;
  step_ = Step::header;
}

void ReceiveDecoder::received(std::size_t bytes, FragmentQueue& queue) {
  const auto count = static_cast<std::uint32_t>(bytes);
  if (check_ && !queue.options().checksum) crc_ = wire::crc32c(queue.room().first(count), crc_);
  queue.advance(count);
  payload_left_ -= count;
  if (payload_left_ == 0) finish_fragment(queue);
}

std::span<std::byte> ReceiveDecoder::direct(FragmentQueue& queue) {
  if (step_ != Step::payload) return {};
  return queue.room();
}

void ReceiveDecoder::take_payload(std::span<const std::byte>& bytes, FragmentQueue& queue) {
  const auto room = queue.room();
  const std::size_t taken = std::min(bytes.size(), room.size());
  memory::copy(room.data(), bytes.first(taken));
  bytes = bytes.subspan(taken);
  received(taken, queue);
}

ReceiveDecoder::Taken ReceiveDecoder::take(std::span<const std::byte> bytes, FragmentQueue& queue) {
  const std::size_t offered = bytes.size();
  if (step_ == Step::payload && !queue.open()) step_ = Step::discard;
  State state = State::hungry;
  while (state == State::hungry) {
    if (fault_ != ReceiveFault::none) {
      state = State::fault;
    } else if (step_ == Step::ended) {
      state = State::end;
    } else if (step_ == Step::begin) {
      state = begin(queue);
    } else if (bytes.empty()) {
      break;
    } else if (step_ == Step::header) {
      if (gather(bytes)) check_header();
    } else if (step_ == Step::payload) {
      take_payload(bytes, queue);
    } else {
      const std::size_t taken = std::min<std::size_t>(bytes.size(), payload_left_);
      bytes = bytes.subspan(taken);
      payload_left_ -= static_cast<std::uint32_t>(taken);
      if (payload_left_ == 0) finish_message();
    }
  }
  return {offered - bytes.size(), state};
}

ReceiveFault ReceiveDecoder::disconnect(FragmentQueue& queue) {
  const bool within = within_message();
  if (step_ == Step::payload && queue.open()) queue.cancel();
  const ReceiveFault result =
      fault_ == ReceiveFault::none && within ? ReceiveFault::cut_short : fault_;
  resent_end_ = reached_end(queue);
  held_at_disconnect_ = queue.numbers().held_fragment();
  step_ = Step::header;
  fault_ = ReceiveFault::none;
  gathered_size_ = 0;
  payload_left_ = 0;
  return result;
}

} // namespace fanin::source
