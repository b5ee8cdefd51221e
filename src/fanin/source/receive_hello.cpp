#include "fanin/source/receive_hello.hpp"

#include <cstring>

#include "fanin/base/assert.hpp"
#include "fanin/source/own_checksum.hpp"

namespace fanin::source {

std::string_view name(ReceiveFault fault) {
  switch (fault) {
  case ReceiveFault::none: return "none";
  case ReceiveFault::bad_preface: return "bad_preface";
  case ReceiveFault::other_version: return "other_version";
  case ReceiveFault::other_source: return "other_source";
  case ReceiveFault::bad_mark: return "bad_mark";
  case ReceiveFault::bad_kind: return "bad_kind";
  case ReceiveFault::bad_size: return "bad_size";
  case ReceiveFault::bad_event: return "bad_event";
  case ReceiveFault::cut_short: return "cut_short";
  case ReceiveFault::no_preface: return "no_preface";
  case ReceiveFault::not_allowed: return "not_allowed";
  case ReceiveFault::damaged: return "damaged";
  }
  return "unknown";
}

std::span<std::byte> ReceiveHello::room() {
  return std::span(bytes_).subspan(size_, complete_ ? 0 : wanted_ - size_);
}

void ReceiveHello::received(std::size_t bytes) {
  FANIN_ASSERT(bytes <= room().size());
  size_ += bytes;
  if (size_ < wanted_) return;
  if (wanted_ == sizeof preface_) {
    take_preface();
  } else {
    take_sender();
  }
  complete_ = size_ == wanted_;
}

void ReceiveHello::take_preface() {
  std::memcpy(&preface_, bytes_.data(), sizeof preface_);
  if (preface_.magic != ReceivePreface{}.magic) {
    fault_ = ReceiveFault::bad_preface;
  } else if (preface_.version < 1 || preface_.version > receive_version || preface_.reserved != 0) {
    fault_ = ReceiveFault::other_version;
  } else if (preface_.version >= 2) {
    wanted_ += sizeof sender_;
    if (has_own_checksums(preface_.version)) wanted_ += sizeof(OwnChecksum);
  }
}

void ReceiveHello::take_sender() {
  std::memcpy(&sender_, bytes_.data() + sizeof preface_, sizeof sender_);
  if (has_own_checksums(preface_.version) && !own_checksum_fits(bytes_))
    fault_ = ReceiveFault::bad_preface;
}

} // namespace fanin::source
