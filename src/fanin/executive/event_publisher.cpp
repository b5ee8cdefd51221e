#include "fanin/executive/event_publisher.hpp"

#include <algorithm>
#include <bit>
#include <utility>

#include <fmt/format.h>

#include "fanin/base/counted.hpp"
#include "fanin/base/try.hpp"
#include "fanin/memory/copy.hpp"
#include "fanin/storage/super_head.hpp"
#include "fanin/wire/super_fragment.hpp"

namespace fanin::executive {
namespace {

constexpr Duration line_period = std::chrono::seconds{10};
constexpr std::uint32_t tags_max = 64; // there are 33

} // namespace

std::uint64_t event_size(const storage::BuiltEvent& event) {
  std::uint64_t size = wire::super_head_size(event.fragments.size() + event.missing.size());
  for (const auto& fragment : event.fragments) size += fragment.payload.size();
  return size;
}

void write_event(RunNumber run, const storage::BuiltEvent& event, std::byte* at) {
  std::vector<std::byte> head;
  storage::append_super_head(run, event, head);
  at = std::ranges::copy(head, at).out;
  for (const auto& fragment : event.fragments) {
    memory::copy(at, fragment.payload);
    at += fragment.payload.size();
  }
}

EventPublisher::EventPublisher(message::ContextParts parts)
    : log_(parts.log), context_(std::move(parts)) {}

Result<std::unique_ptr<EventPublisher>> EventPublisher::listen(const net::Url& url,
                                                               message::ContextParts parts) {
  std::unique_ptr<EventPublisher> made(new EventPublisher(std::move(parts)));
  EventPublisher* const self = made.get();
  made->publisher_ = FANIN_TRY(message::Publisher::listen(
      made->context_, url,
      {.slow = message::SlowSubscriber::sample,
       .send_queue_bytes = reader_queue,
       .tags_max = tags_max,
       .tags_sum_max = readers_max * tags_max,
       .subscribers_max = readers_max,
       .on_subscriber = [self](message::PeerId id) { self->add_reader(id); },
       .on_subscriber_gone = [self](message::PeerId id,
                                    message::CloseReason) { self->remove_reader(id); }}));
  return made;
}

bool EventPublisher::wanted() const {
  if (publisher_->connections() == 0) return false;
  for (message::Tag tag = all_events_tag; tag <= storage::streams_max + 1; ++tag) {
    if (publisher_->has_subscriber(tag)) return true;
  }
  return false;
}

void EventPublisher::add_reader(message::PeerId id) {
  std::string& name = readers_[id];
  name = publisher_->peer_name(id);
  log_reader(name, "has connected");
}

void EventPublisher::remove_reader(message::PeerId id) {
  const auto found = readers_.find(id);
  if (found == readers_.end()) return;
  log_reader(found->second, "has left");
  readers_.erase(found);
}

void EventPublisher::log_reader(std::string_view name, std::string_view what) {
  lines_.write(log_, context_.loop().now(), LogLevel::info,
               fmt::format("a reader of events, {}, {}", name, what));
}

void EventPublisher::publish(RunNumber run, const storage::BuiltEvent& event) {
  const auto has = [this](message::Tag tag) { return publisher_->has_subscriber(tag); };
  std::uint32_t streams = event.streams;
  for (std::uint32_t left = streams; left != 0; left &= left - 1) {
    const auto stream = static_cast<std::uint32_t>(std::countr_zero(left));
    if (!has(1 + stream)) streams &= ~(1U << stream);
  }
  if (!has(all_events_tag) && streams == 0) return;
  const std::uint64_t size = event_size(event);
  std::byte* at = small_.data();
  memory::View large;
  if (size > small_event_max) large = large_.make(size, at);
  if (size > small_event_max && large.size == 0) {
    ++withheld_;
    return log_skipped();
  }
  write_event(run, event, at);
  ++published_;
  const std::span<const std::byte> bytes(at, size);
  if (has(all_events_tag)) give(all_events_tag, bytes, large);
  for (; streams != 0; streams &= streams - 1) {
    give(1U + static_cast<std::uint32_t>(std::countr_zero(streams)), bytes, large);
  }
  log_skipped();
}

// It waits for no reader, so it always takes the event; what a reader misses is counted.
void EventPublisher::give(message::Tag tag, std::span<const std::byte> event,
                          const memory::View& large) {
  (void)(large.size > 0 ? publisher_->publish(tag, large) : publisher_->publish(tag, event));
}

void EventPublisher::log_skipped() {
  const Time now = context_.loop().now();
  if (skipped() == skipped_logged_ || now < next_line_) return;
  skipped_logged_ = skipped();
  next_line_ = now + line_period;
  if (log_) {
    log_(LogLevel::warning,
         fmt::format("readers of events are too slow, or events too large for them: so far {} not "
                     "given to them; the run does not wait",
                     counted(skipped_logged_, "event was", "events were")));
  }
}

} // namespace fanin::executive
