#include "fanin/message/page_queue.hpp"

#include <algorithm>
#include <tuple>

#include "fanin/base/assert.hpp"
#include "fanin/memory/copy.hpp"
#include "fanin/memory/heap_page.hpp"
#include "fanin/message/gathering_page.hpp"

namespace fanin::message {
namespace {

// Taken of the heap at once, for pieces of one message; bytes.
constexpr std::uint64_t heap_least = 4096;
constexpr std::uint64_t heap_most = 64U << 10;

} // namespace

PageQueue::PageQueue(Context& context, SocketCounters& counters, Options options, OnBad on_bad)
    : message_max_(static_cast<std::uint32_t>(std::min(options.message_max, Message::size_max))),
      context_(context),
      counters_(counters),
      unfinished_max_(options.unfinished_max == 0 ? options.message_max : options.unfinished_max),
      on_ready_(std::move(options.on_ready)),
      on_bad_(std::move(on_bad)) {}

PageQueue::~PageQueue() { context_.forget(*this); }

void PageQueue::push(std::shared_ptr<PageSource> source, memory::View page, memory::View rest) {
  if (page.size == 0 && rest.size == 0) return;
  ++counters_.pages;
  pages_.push_back({std::move(source), std::move(page), std::move(rest)});
  call_on_ready(); // now, while the page is in cache
  if (!empty()) context_.at_turn_end(*this);
}

void PageQueue::end(std::shared_ptr<PageSource> source) {
  const bool queued = reading_.source == source ||
                      std::any_of(pages_.begin(), pages_.end(),
                                  [&](const Entry& one) { return one.source == source; });
  if (queued) {
    pages_.push_back({std::move(source), {}, {}});
  } else {
    nothing_follows(*source);
  }
}

void PageQueue::nothing_follows(PageSource& source) {
  if (!source.unfinished.empty()) ++counters_.lost;
  forget_unfinished(source);
}

void PageQueue::call_on_ready() {
  if (!on_ready_) return;
  try {
    on_ready_();
  } catch (...) {
    reject_after_throw();
  }
}

void PageQueue::reject_after_throw() {
  if (reading_.source == nullptr) (void)next_page();
  const auto source = reading_.source != nullptr ? reading_.source : previous_source_;
  if (source == nullptr || source->bad) return;
  reject(*source, CloseReason::callback_threw);
  // Or on_ready, which would throw again, is asked to read what nobody can.
  if (reading_.source == nullptr || reading_.source == source) (void)next_page();
}

TurnEndTask::Answer PageQueue::at_turn_end() {
  if (empty()) return {};
  const auto place = [this] {
    return std::tuple(pages_.size(), reading_.source.get(), reader_.at());
  };
  const auto before = place();
  call_on_ready();
  // Who reads nothing waits for something else, as a forwarder under backpressure does.
  return {.stay = !empty(), .worked = place() != before};
}

void PageQueue::reject(PageSource& source, CloseReason reason) {
  source.bad = true;
  forget_unfinished(source);
  if (reading_.source.get() == &source) {
    reader_ = {};
    reading_.page = reading_.rest = {};
  }
  on_bad_(source, reason);
}

bool PageQueue::next_slowly(Message& message, PageReader::Step step, Frame frame) {
  while (true) {
    switch (step) {
    case PageReader::Step::frame:
      if (read_frame(message, frame)) return true;
      break;
    case PageReader::Step::malformed: reject(*reading_.source, CloseReason::bad_page); break;
    case PageReader::Step::end:
      if (!next_page()) {
        message.release();
        return false;
      }
    }
    step = reader_.next(frame);
  }
}

bool PageQueue::next_page() {
  reader_ = {};
  if (reading_.source != nullptr) previous_source_ = std::move(reading_.source);
  reading_ = {};
  while (!pages_.empty()) {
    reading_ = std::move(pages_.front());
    pages_.pop_front();
    PageSource& source = *reading_.source;
    if (reading_.page.page.get() == nullptr) {
      nothing_follows(source);
    } else if (!source.bad) {
      reader_ = PageReader{reading_.page.bytes(), reading_.rest.size};
      return true;
    }
    reading_ = {};
  }
  return false;
}

// True: it completes `message`.
bool PageQueue::read_frame(Message& message, const Frame& frame) {
  PageSource& source = *reading_.source;
  if (!is_expected(frame.header, !source.unfinished.empty())) {
    reject(source, CloseReason::bad_page);
    return false;
  }
  if (source.unfinished_bytes + frame.header.size > message_max_) {
    reject(source, CloseReason::message_too_large);
    return false;
  }
  const memory::View& part = frame.in_rest ? reading_.rest : reading_.page;
  memory::View view = part.subview(frame.offset, frame.header.size);
  if (frame.header.flags == 0) {
    message.receive(source.id, std::move(view), {});
    return true;
  }
  const bool last = (frame.header.flags & FrameHeader::goes_on) == 0;
  if (!last) {
    keep(source, std::move(view));
    return false;
  }
  source.unfinished.push_back(std::move(view));
  message.receive(source.id, source.unfinished);
  forget_unfinished(source);
  return true;
}

// A piece of a message waits for the rest. What it holds meanwhile can be what the rest needs to
// come, its own or that of others: so it moves out of the way when pages are scarce. Small pieces
// always do, but the first, as a published message's tag is: a view of each would be more than it.
void PageQueue::keep(PageSource& source, memory::View view) {
  const bool lent = view.page.get()->home != &context_.receive_pool();
  const std::uint64_t held = std::uint64_t{reading_.page.size} + reading_.rest.size;
  const memory::PagePool& pool = context_.receive_pool();
  const bool scarce =
      lent ? source.lent_bytes + held > source.lent_max : pool.available() <= pool.pages() / 4;
  source.unfinished_bytes += view.size;
  if (scarce || (view.size < copy_below_bytes && !source.unfinished.empty()))
    return keep_copy(source, view.bytes());
  if (lent) source.lent_bytes += held;
  source.heap_room = 0;
  source.unfinished.push_back(std::move(view));
}

// Behind the piece before, where that lies on the heap already. What is taken of the heap counts,
// not what is used: so small pieces cost what they are charged.
void PageQueue::keep_copy(PageSource& source, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    if (source.heap_room == 0) {
      const std::uint64_t usual =
          std::clamp<std::uint64_t>(source.heap_bytes, heap_least, heap_most);
      source.heap_room = static_cast<std::uint32_t>(std::max<std::uint64_t>(usual, bytes.size()));
      source.heap_bytes += source.heap_room;
      heap_bytes_ += source.heap_room;
      if (heap_bytes_ > unfinished_max_) return reject(source, CloseReason::unfinished_too_large);
      std::byte* at = nullptr;
      source.unfinished.push_back(memory::HeapPage::make(source.heap_room, at));
      source.unfinished.back().size = 0;
    }
    memory::View& last = source.unfinished.back();
    const std::size_t size = std::min<std::size_t>(source.heap_room, bytes.size());
    memory::copy(last.page.get()->data + last.offset + last.size, bytes.first(size));
    last.size += static_cast<std::uint32_t>(size);
    source.heap_room -= static_cast<std::uint32_t>(size);
    bytes = bytes.subspan(size);
  }
}

void PageQueue::forget_unfinished(PageSource& source) {
  FANIN_ASSERT(source.heap_bytes <= heap_bytes_);
  heap_bytes_ -= source.heap_bytes;
  source.unfinished.clear();
  source.unfinished_bytes = source.lent_bytes = source.heap_bytes = 0;
  source.heap_room = 0;
}

} // namespace fanin::message
