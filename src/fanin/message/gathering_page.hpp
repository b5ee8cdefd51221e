/// \file
/// The page in which messages are gathered (Schumacher 2017, section III-A: "buffers in which
/// messages are copied ... referred to as pages"). Its owner sends what is in it, and may then
/// fill the rest of the page.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "fanin/base/export.hpp"
#include "fanin/memory/page_pool.hpp"
#include "fanin/message/page_format.hpp"

namespace fanin::message {

/// What is sent as one transport message: up to two extents.
struct Parcel {
  memory::View page; ///< frames; the last one's payload may be `payload`
  memory::View payload = {};
  bool continues = false; ///< its first frame is not the first piece of its message
  bool goes_on = false; ///< its last frame is not the last one
  std::uint64_t messages = 0; ///< messages that end in it; 0 where nobody counts them
  [[nodiscard]] std::uint64_t size() const { return std::uint64_t{page.size} + payload.size; }
};

/// A GatheringPage holds no page before open() and after release(). Thread: the pool's.
class GatheringPage {
public:
  GatheringPage() = default;
  /// `unsent_max`: most bytes that are sent at once. `pool` must outlive it.
  GatheringPage(memory::PagePool& pool, std::uint32_t unsent_max) : pool_(&pool) {
    limit_unsent(unsent_max);
  }

  /// Memory for the payload of a frame of that size. The caller writes the payload at once; header
  /// and padding are written already. Null: there is no room, or the page is not open.
  [[nodiscard]] std::byte* append(std::size_t size, std::uint16_t type = 0,
                                  std::uint16_t flags = 0) {
    const std::size_t taken = frame_size(size);
    if (taken > limit_ - end_) return nullptr;
    std::byte* const at = data_ + end_;
    std::memset(at + taken - frame_alignment, 0, frame_alignment);
    const FrameHeader header{type, flags, static_cast<std::uint32_t>(size)};
    std::memcpy(at, &header, sizeof header);
    end_ += static_cast<std::uint32_t>(taken);
    return at + sizeof header;
  }

  /// Appends the header of a frame whose payload is sent behind the page, as a separate extent.
  [[nodiscard]] bool append_header(std::uint32_t payload, std::uint16_t flags);

  /// Takes a page if it has none, and makes it usable for append(). False: the pool is empty.
  [[nodiscard]] FANIN_INTERNAL_API bool open();
  /// Opens a page with room for a frame of that size; another page if this one is full. Calls
  /// send() if what was gathered has to be sent before. False: that failed, or the pool is empty.
  template <class Send>
  [[nodiscard]] bool make_room(std::size_t size, Send send) {
    if (page_ && !fits(size)) {
      if (!empty()) send();
      if (page_ && !fits(size)) {
        if (!empty()) return false;
        release();
      }
    }
    return open();
  }
  /// append() returns null until open(), so that the owner notices the next message.
  void suspend() { limit_ = end_; }
  /// Whether there is room for a frame of that size once it is open.
  [[nodiscard]] bool fits(std::size_t size) const {
    return page_ && end_ + frame_size(size) <= room_end();
  }
  /// Largest payload of one frame; a larger message has to be split.
  [[nodiscard]] std::size_t payload_max() const { return unsent_max_ - sizeof(FrameHeader); }
  /// Most bytes that are sent at once, from the next open() on.
  void limit_unsent(std::uint32_t bytes) {
    unsent_max_ = std::min(bytes, pool_->page_size()) & ~(frame_alignment - 1);
  }

  [[nodiscard]] bool has_page() const { return static_cast<bool>(page_); }
  [[nodiscard]] bool shared() const { return page_.page()->references > 1; } ///< a view is held
  [[nodiscard]] bool empty() const { return start_ == end_; } ///< nothing to send
  [[nodiscard]] std::uint32_t size() const { return end_ - start_; } ///< bytes to be sent
  [[nodiscard]] std::uint32_t end() const { return end_; }
  /// The part that has not been sent.
  [[nodiscard]] memory::View unsent() const { return page_.freeze(start_, end_ - start_); }
  /// The part from `offset` to the end of the filled part.
  [[nodiscard]] memory::View from(std::uint32_t offset) const {
    return page_.freeze(offset, end_ - offset);
  }
  void sent() { start_ = end_; }
  /// Releases the page and forgets what was not sent.
  FANIN_INTERNAL_API void release();

private:
  [[nodiscard]] std::uint32_t room_end() const {
    return std::min(pool_->page_size(), start_ + unsent_max_);
  }

  memory::PagePool* pool_ = nullptr;
  std::byte* data_ = nullptr;
  std::uint32_t unsent_max_ = 0;
  std::uint32_t limit_ = 0; // of append(): room_end(), or end_ where it is suspended
  std::uint32_t end_ = 0;
  std::uint32_t start_ = 0; // of what is not sent yet
  memory::Loan page_;
};

} // namespace fanin::message
