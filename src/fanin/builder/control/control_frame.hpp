// A control message as a frame of a page (message/page_format.hpp): its body, then the bytes of its
// parts, padded to a multiple of 8. Its type is the message's wire::MessageType.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>

#include "fanin/message/page_format.hpp"
#include "fanin/wire/control.hpp"

namespace fanin::builder {

// Of the body of any message, with its padding.
inline constexpr std::size_t control_body_max = 120;

// The bytes of a part of a message: text, or an array of records.
inline std::span<const std::byte> message_bytes(std::string_view text) {
  return std::as_bytes(std::span{text.data(), text.size()});
}
template <class T>
  requires(!std::convertible_to<T, std::string_view>)
std::span<const std::byte> message_bytes(const T& records) {
  return std::as_bytes(std::span{records});
}

[[nodiscard]] constexpr std::size_t padded(std::size_t size) {
  return message::frame_size(size) - sizeof(message::FrameHeader);
}

// Gives the place of the payload.
inline std::byte* put_header(std::byte* at, wire::MessageType type, std::size_t size) {
  const message::FrameHeader header{static_cast<std::uint16_t>(type), 0,
                                    static_cast<std::uint32_t>(size)};
  std::memcpy(at, &header, sizeof header);
  return at + sizeof header;
}

// Writes a message without the header of its frame. `reserve(type, size)` gives the place for it;
// null: there is none, and nothing is written.
template <class Reserve, class Body, class... Parts>
void put_message(Reserve reserve, const Body& body, const Parts&... parts) {
  static_assert(sizeof(Body) + message::frame_alignment <= control_body_max);
  const std::size_t size = sizeof(Body) + (message_bytes(parts).size() + ... + 0);
  std::byte* at = reserve(Body::type, padded(size));
  if (at == nullptr) return;
  const auto put = [&at](std::span<const std::byte> bytes) {
    if (!bytes.empty()) std::memcpy(at, bytes.data(), bytes.size());
    at += bytes.size();
  };
  put(std::as_bytes(std::span{&body, 1}));
  (put(message_bytes(parts)), ...);
}

// Calls visit(MessageType, std::span<const std::byte> body) for each message gathered in `page`.
// False if its lengths lie, or when visit returns false.
template <class Visit>
[[nodiscard]] bool for_each_message(std::span<const std::byte> page, Visit visit) {
  message::PageReader reader{page};
  message::Frame frame;
  message::PageReader::Step step{};
  while ((step = reader.next(frame)) == message::PageReader::Step::frame) {
    if (frame.header.flags != 0 || frame.header.size % message::frame_alignment != 0) return false;
    if (!visit(static_cast<wire::MessageType>(frame.header.type),
               page.subspan(frame.offset, frame.header.size)))
      return false;
  }
  return step == message::PageReader::Step::end;
}

} // namespace fanin::builder
