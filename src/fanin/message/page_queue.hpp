/// \file
/// Received pages that are not read yet (Schumacher 2017, section III-A: the "page queue").
/// Messages are read in place. The pools of the pages bound the queue.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <memory_resource>
#include <span>
#include <vector>

#include "fanin/base/export.hpp"
#include "fanin/message/context.hpp"
#include "fanin/message/counters.hpp"
#include "fanin/message/message.hpp"
#include "fanin/message/page_format.hpp"

namespace fanin::message {

/// The connection that pages come from. Its owner and its pages in the queue share it.
struct PageSource {
  PeerId id = PeerId::none;
  std::uint64_t lent_max = 0; ///< Hello::lent_max
  bool bad = false; ///< it sent an invalid page; nothing more of it is read
  std::vector<memory::View> unfinished; ///< pieces of an incomplete message
  std::uint64_t unfinished_bytes = 0;
  std::uint64_t lent_bytes = 0; ///< if memory is shared: bytes of the peer's memory that
                                ///< `unfinished` holds
  /// Heap for pieces that were moved out of pages. The last piece of `unfinished` is in it and may
  /// grow by heap_room.
  std::uint64_t heap_bytes = 0;
  std::uint32_t heap_room = 0;
};

class PageQueue final : TurnEndTask {
public:
  struct Options {
    std::uint64_t message_max = 0; ///< bytes
    /// Most bytes of heap for all incomplete messages together; 0: message_max.
    std::uint64_t unfinished_max = 0;
    /// Called when there are messages; again in the next turn if not all were read. If it read
    /// nothing, the loop may sleep before that turn.
    std::function<void()> on_ready;
  };
  /// A source has sent an invalid page; or on_ready threw, and this source was read last, or would
  /// be read next if on_ready read nothing.
  using OnBad = std::function<void(PageSource&, CloseReason)>;
  PageQueue(Context& context, SocketCounters& counters, Options options, OnBad on_bad);
  ~PageQueue() override;

  void push(std::shared_ptr<PageSource> source, memory::View page, memory::View rest);
  /// The connection has ended. Its queued pages can still be read.
  void end(std::shared_ptr<PageSource> source);
  /// No further page of the source is read.
  void reject(PageSource& source, CloseReason reason);

  /// The source of the page that is being read; null: none.
  [[nodiscard]] PageSource* reading() const { return reading_.source.get(); }

  /// The next message; false if there is none. `message` releases what it held.
  [[nodiscard]] bool next(Message& message) {
    Frame frame;
    const PageReader::Step step = reader_.next(frame);
    const bool plain = step == PageReader::Step::frame && frame.header.flags == 0 &&
                       !frame.in_rest && frame.header.size <= message_max_;
    if (!plain || reading_.source->unfinished_bytes != 0) return next_slowly(message, step, frame);
    take(message, frame);
    return true;
  }

private:
  struct Entry {
    std::shared_ptr<PageSource> source;
    memory::View page; // without a page: the end of the source
    memory::View rest;
  };

  // A whole message of the current page. The page's count is touched only if `message` held another
  // page.
  void take(Message& message, const Frame& frame) {
    if (message.view_.page.get() != reading_.page.page.get())
      message.view_.page = reading_.page.page;
    if (!message.more_.empty()) message.more_.clear();
    message.view_.offset = reading_.page.offset + frame.offset;
    message.view_.size = frame.header.size;
    message.peer_ = reading_.source->id;
  }
  Answer at_turn_end() override;
  void call_on_ready();
  void reject_after_throw(); // on_ready threw
  FANIN_API bool next_slowly(Message& message, PageReader::Step step, Frame frame);
  // No page is queued or being read.
  [[nodiscard]] bool empty() const { return pages_.empty() && reading_.source == nullptr; }
  [[nodiscard]] bool next_page();
  [[nodiscard]] bool read_frame(Message& message, const Frame& frame);
  void keep(PageSource& source, memory::View view);
  void keep_copy(PageSource& source, std::span<const std::byte> bytes);
  void nothing_follows(PageSource& source); // of its connection
  void forget_unfinished(PageSource& source);

  PageReader reader_;
  std::uint32_t message_max_;
  Entry reading_;
  std::shared_ptr<PageSource> previous_source_; // before reading_; null: none
  std::pmr::unsynchronized_pool_resource memory_; // of the queue, reused
  std::pmr::deque<Entry> pages_{&memory_};
  Context& context_;
  SocketCounters& counters_;
  std::uint64_t unfinished_max_;
  std::uint64_t heap_bytes_ = 0; // of all sources' unfinished messages
  std::function<void()> on_ready_;
  OnBad on_bad_;
};

} // namespace fanin::message
