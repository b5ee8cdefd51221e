// Pages that were received and not read yet (Schumacher 2017, section III-A: the "page queue"),
// taken apart in place. The pools that the pages are from bound it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <memory_resource>
#include <span>
#include <utility>
#include <vector>

#include "fanin/message/context.hpp"
#include "fanin/message/counters.hpp"
#include "fanin/message/message.hpp"
#include "fanin/message/page_format.hpp"

namespace fanin::message {

// Where pages come from: one connection. Shared by its owner and its pages in the queue.
struct PageSource {
  PeerId id = PeerId::none;
  std::uint64_t lent_max = 0;           // Hello::lent_max
  bool bad = false;                     // what it sent makes no sense: nothing more of it is read
  std::vector<memory::View> unfinished; // pieces of a message whose end has not come
  std::uint64_t unfinished_bytes = 0;
  std::uint64_t lent_bytes = 0; // of the peer's messages that are held for them, where it lends
  // Of the heap for pieces that were moved out of pages; the last of `unfinished` lies in it and
  // may grow by heap_room.
  std::uint64_t heap_bytes = 0;
  std::uint32_t heap_room = 0;
};

class PageQueue final : TurnEndTask {
public:
  struct Options {
    std::uint64_t message_max = 0; // bytes
    // Bytes of heap for unfinished messages, all together, as they are taken; 0: as message_max.
    std::uint64_t unfinished_max = 0;
    // There are messages: read some. Called again next turn if not all were read.
    std::function<void()> on_ready;
  };
  // A source has sent what no source may send, or on_ready threw: it was read last, or would be
  // read next where on_ready read nothing.
  using OnBad = std::function<void(PageSource&, CloseReason)>;
  PageQueue(Context& context, SocketCounters& counters, Options options, OnBad on_bad);
  ~PageQueue() override;

  void push(std::shared_ptr<PageSource> source, memory::View page, memory::View rest);
  // The connection is over. What is queued of it can still be read.
  void end(std::shared_ptr<PageSource> source);
  // Nothing more is read of it.
  void reject(PageSource& source, CloseReason reason);

  // Whose page is being read; null: none is.
  [[nodiscard]] PageSource* reading() const { return reading_.source.get(); }

  // The next message; false if there is none. `message` lets go of what it held.
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
    memory::View page; // without a page: nothing follows
    memory::View rest;
  };

  // A whole message in the page that is being read. The count of its page is touched only when
  // `message` held another one.
  void take(Message& message, const Frame& frame) {
    if (message.view_.page.get() != reading_.page.page.get())
      message.view_.page = reading_.page.page;
    if (!message.more_.empty()) message.more_.clear();
    message.view_.offset = reading_.page.offset + frame.offset;
    message.view_.size = frame.header.size;
    message.peer_ = reading_.source->id;
  }
  Answer at_turn_end() override;
  void tell_ready();
  void blame(); // on_ready threw
  bool next_slowly(Message& message, PageReader::Step step, Frame frame);
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
  std::shared_ptr<PageSource> read_last_; // before reading_; null: none
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
