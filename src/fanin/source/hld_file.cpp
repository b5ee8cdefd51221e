#include "fanin/source/hld_file.hpp"

#include <fmt/format.h>

#include <cstring>

#include "fanin/base/try.hpp"

namespace fanin::source {
namespace {

constexpr std::size_t event_header_size = 32;
constexpr std::size_t subevent_header_size = 16;
constexpr std::uint32_t event_max = 256U << 20; // bytes; more is taken for damage
constexpr std::uint32_t decoding_max = 0x00ffffff;

std::uint32_t word(std::span<const std::byte> bytes, std::size_t at, bool big_endian) {
  std::uint32_t value;
  std::memcpy(&value, bytes.data() + at, sizeof value);
  return big_endian ? __builtin_bswap32(value) : value;
}

std::uint64_t padded(std::uint64_t size) { return (size + 7) & ~std::uint64_t{7}; }

} // namespace

// Of an event or a subevent at `offset`.
Result<> HldReader::check_decoding(std::uint64_t offset, std::uint32_t decoding) const {
  if (decoding <= decoding_max) return {};
  return file_.wrong(offset + 4,
                     fmt::format("decoding word {:#010x} has no valid byte order", decoding));
}

Result<bool> HldReader::next_event() {
  if (next_event_ == file_.size()) return false;
  const std::uint64_t offset = next_event_;
  const auto header = FANIN_TRY(file_.at(offset, event_header_size));
  // The decoding word says the byte order: its first byte is 0.
  const bool big_endian = word(header, 4, false) > decoding_max;
  const std::uint32_t size = word(header, 0, big_endian);
  FANIN_TRY(check_decoding(offset, word(header, 4, big_endian)));
  if (size < event_header_size || size > event_max) {
    return file_.wrong(offset, fmt::format("event size {} is not between {} and {}", size,
                                           event_header_size, event_max));
  }
  bytes_ = FANIN_TRY(file_.at(offset, size));
  event_ = {offset, word(bytes_, 12, big_endian)};
  event_end_ = offset + size;
  next_event_ = offset + padded(size);
  if (next_event_ > file_.size()) next_event_ = file_.size(); // the last one without its padding
  next_subevent_ = offset + event_header_size;
  next_block_ = subevent_end_ = 0;
  return true;
}

Result<bool> HldReader::next_subevent() {
  if (next_subevent_ >= event_end_) return false;
  const std::uint64_t offset = next_subevent_;
  const std::uint64_t rest = event_end_ - offset;
  if (rest < subevent_header_size) {
    return file_.wrong(offset, fmt::format("{} bytes are left in the event at {}: too few for a "
                                           "subevent header",
                                           rest, event_.offset));
  }
  const auto header = bytes_.subspan(offset - event_.offset);
  const bool big_endian = word(header, 4, false) > decoding_max;
  const std::uint32_t size = word(header, 0, big_endian);
  FANIN_TRY(check_decoding(offset, word(header, 4, big_endian)));
  if (size < subevent_header_size || size > rest || size % 4 != 0) {
    return file_.wrong(offset,
                       fmt::format("subevent size {} does not fit: {} bytes are left in the "
                                   "event at {}",
                                   size, rest, event_.offset));
  }
  subevent_ = {offset, word(header, 12, big_endian) >> 8, big_endian};
  next_block_ = offset + subevent_header_size;
  subevent_end_ = offset + size;
  next_subevent_ = offset + padded(size);
  return true;
}

Result<bool> HldReader::next_block() {
  while (next_block_ == subevent_end_) {
    auto moved = next_subevent();
    if (!moved || !*moved) return moved;
  }
  const std::uint64_t offset = next_block_;
  const auto rest = bytes_.subspan(offset - event_.offset, subevent_end_ - offset);
  const std::uint32_t head = word(rest, 0, subevent_.big_endian); // rest is a multiple of 4, not 0
  const std::size_t size = 4 + 4 * std::size_t{head >> 16};
  if (size > rest.size()) {
    return file_.wrong(offset,
                       fmt::format("block of {} bytes from address {:#06x} does not fit: {} "
                                   "bytes are left in the subevent at {}",
                                   size, head & 0xffff, rest.size(), subevent_.offset));
  }
  block_ = {offset, static_cast<std::uint16_t>(head & 0xffff), rest.first(size)};
  next_block_ = offset + size;
  return true;
}

} // namespace fanin::source
