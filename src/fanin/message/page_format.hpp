/// \file
/// Messages in a page (Schumacher 2017, section III-A: "simply prepending an 8 byte length field to
/// the message contents"): frames, one after the other. A frame is a header of 8 bytes and its
/// payload, padded with zeros to a multiple of 8. A message larger than a page is split: its frames
/// are in consecutive pages of one connection. Little-endian.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace fanin::message {

struct FrameHeader {
  std::uint16_t type = 0; ///< the user's
  std::uint16_t flags = 0;
  std::uint32_t size = 0; ///< of the payload, bytes

  /// A whole message has no flag.
  static constexpr std::uint16_t continued = 1; ///< not the first piece of its message
  static constexpr std::uint16_t goes_on = 2; ///< not the last
};
static_assert(sizeof(FrameHeader) == 8 && offsetof(FrameHeader, flags) == 2);
static_assert(offsetof(FrameHeader, size) == 4);

/// The flags of a piece of a message; 0 for the only piece.
[[nodiscard]] constexpr std::uint16_t piece_flags(bool first, bool last) {
  return static_cast<std::uint16_t>((first ? 0 : FrameHeader::continued) |
                                    (last ? 0 : FrameHeader::goes_on));
}

inline constexpr std::uint32_t frame_alignment = 8;
/// The bytes that a frame takes in a page.
[[nodiscard]] constexpr std::size_t frame_size(std::size_t payload) {
  return (sizeof(FrameHeader) + payload + frame_alignment - 1) & ~std::size_t{frame_alignment - 1};
}

struct Frame {
  FrameHeader header;
  std::uint32_t offset = 0; ///< of the payload, in its part of the page
  bool in_rest = false; ///< which part that is
};

/// Reads the frames of a page in place. A page may come in two parts: then the second one is the
/// payload of the frame whose header ends the first (net::Event::rest). It checks lengths; the
/// caller checks flags.
class PageReader {
public:
  enum class Step : std::uint8_t { frame, end, malformed };

  PageReader() = default;
  explicit PageReader(std::span<const std::byte> page, std::size_t rest_size = 0)
      : data_(page.data()),
        end_(static_cast<std::uint32_t>(page.size())),
        rest_size_(static_cast<std::uint32_t>(rest_size)) {}

  [[nodiscard]] Step next(Frame& frame) {
    const std::uint32_t left = end_ - at_;
    if (left < sizeof(FrameHeader))
      return left == 0 && rest_size_ == 0 ? Step::end : Step::malformed;
    std::memcpy(&frame.header, data_ + at_, sizeof(FrameHeader));
    if (frame.header.size > left - sizeof(FrameHeader)) return next_in_rest(frame, left);
    frame.offset = at_ + static_cast<std::uint32_t>(sizeof(FrameHeader));
    frame.in_rest = false;
    // The last frame may come without its padding.
    const std::size_t taken = frame_size(frame.header.size);
    at_ = taken < left ? at_ + static_cast<std::uint32_t>(taken) : end_;
    return Step::frame;
  }
  /// Where the next frame begins; bytes.
  [[nodiscard]] std::uint32_t at() const { return at_; }

private:
  [[nodiscard]] Step next_in_rest(Frame& frame, std::uint32_t left) {
    if (left != sizeof(FrameHeader) || frame.header.size != rest_size_) return Step::malformed;
    frame.offset = 0;
    frame.in_rest = true;
    at_ = end_;
    rest_size_ = 0;
    return Step::frame;
  }

  const std::byte* data_ = nullptr;
  std::uint32_t at_ = 0;
  std::uint32_t end_ = 0;
  std::uint32_t rest_size_ = 0; // still to come
};

/// Whether a frame may come while a message is incomplete, or while none is. The pieces of a
/// message are not empty.
[[nodiscard]] constexpr bool is_expected(const FrameHeader& header, bool unfinished) {
  constexpr unsigned both = FrameHeader::continued | FrameHeader::goes_on;
  if (header.flags == 0) return !unfinished;
  return (header.flags & ~both) == 0 && header.size > 0 &&
         unfinished == ((header.flags & FrameHeader::continued) != 0);
}

} // namespace fanin::message
