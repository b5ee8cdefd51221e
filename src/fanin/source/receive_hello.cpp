#include "fanin/source/receive_hello.hpp"

#include <cstring>

#include <fmt/format.h>

#include "fanin/base/assert.hpp"

namespace fanin::source {
namespace {

std::string meaning(ReceiveFault fault) {
  switch (fault) {
  case ReceiveFault::none: return "no fault";
  case ReceiveFault::bad_preface:
    return "it is no sender of fragments, or its first bytes were damaged on the way";
  case ReceiveFault::other_version:
    return fmt::format("only version {} of the format is known here", receive_version);
  case ReceiveFault::other_source: return "it has data of another source";
  case ReceiveFault::bad_mark:
    return "no header where one must be: a size was wrong, or bytes are missing";
  case ReceiveFault::bad_kind: return "a header has an unknown kind or flags";
  case ReceiveFault::bad_size: return "a header has a size that cannot be";
  case ReceiveFault::bad_event: return "a header has an event number that cannot be";
  case ReceiveFault::cut_short: return "it ended, or stood still, within a message";
  case ReceiveFault::no_preface: return "it did not say in time what it sends, and others waited";
  case ReceiveFault::not_allowed: return "its address is not on the list `allow`";
  case ReceiveFault::damaged: return "a checksum differs";
  }
  return "unknown";
}

} // namespace

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

std::string described(ReceiveFault fault) {
  return fmt::format("{}: {}", name(fault), meaning(fault));
}

std::span<std::byte> ReceiveHello::room() {
  return std::span(bytes_).subspan(size_, complete_ ? 0 : wanted_ - size_);
}

void ReceiveHello::received(std::size_t bytes) {
  FANIN_ASSERT(bytes <= room().size());
  size_ += bytes;
  if (size_ < wanted_) return;
  if (wanted_ == sizeof(ReceivePreface)) {
    take_preface();
  } else {
    take_opening();
  }
  complete_ = size_ == wanted_;
}

void ReceiveHello::take_preface() {
  ReceivePreface& preface = opening_.preface;
  std::memcpy(&preface, bytes_.data(), sizeof preface);
  if (preface.magic != ReceivePreface{}.magic) {
    fault_ = ReceiveFault::bad_preface;
  } else if (preface.version != receive_version) {
    fault_ = ReceiveFault::other_version;
  } else if (preface.form == ReceiveForm::reliable) {
    wanted_ = bytes_.size();
  } else if (preface.form != ReceiveForm::plain) {
    fault_ = ReceiveFault::bad_preface;
  }
}

void ReceiveHello::take_opening() {
  std::memcpy(&opening_, bytes_.data(), sizeof opening_);
  if (!own_checksum_fits(bytes_) || sender() == 0) fault_ = ReceiveFault::bad_preface;
}

} // namespace fanin::source
