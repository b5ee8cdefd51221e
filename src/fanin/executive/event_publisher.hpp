// Publishes single events of a builder unit for whoever wants to look at them. It waits for nobody:
// a reader that is too slow misses events.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "fanin/base/log_limiter.hpp"
#include "fanin/memory/bounded_heap.hpp"
#include "fanin/message/context.hpp"
#include "fanin/message/message.hpp"
#include "fanin/message/publisher.hpp"
#include "fanin/storage/batch_events.hpp"

namespace fanin::executive {

// A larger event goes over the heap, once for all readers.
inline constexpr std::uint32_t small_event_max = 64U << 10; // bytes
// The pages that NodePools have for smaller events.
inline constexpr std::uint32_t publisher_page = small_event_max + 4096;
inline constexpr std::uint32_t publisher_pages = 16;
inline constexpr std::uint32_t reader_page = 64U << 10;
inline constexpr std::uint32_t reader_pages = 8;
inline constexpr std::size_t readers_max = 16;
inline constexpr std::uint64_t reader_queue = 1U << 20; // bytes that wait for one of them
// Bytes of larger events that are under way to readers; beyond that further ones are skipped. As
// large as the largest event that a reader takes unless it asks for more.
inline constexpr std::uint64_t large_events_max = 64U << 20;

// The tags of an event: that of all events, and one for each of its streams, from 1 on.
inline constexpr message::Tag all_events_tag = 0;

// Where an event goes that was chosen.
class EventOutput {
public:
  virtual ~EventOutput() = default;
  // Somebody has asked for events.
  [[nodiscard]] virtual bool wanted() const = 0;
  virtual void publish(RunNumber run, const storage::BuiltEvent& event) = 0;
};

// An event as a super-fragment (wire/super_fragment.hpp): its size, and its bytes, for which there
// is room at `at`.
[[nodiscard]] std::uint64_t event_size(const storage::BuiltEvent& event);
void write_event(RunNumber run, const storage::BuiltEvent& event, std::byte* at);

// Thread: the loop's.
class EventPublisher final : public EventOutput {
public:
  // Errors: those of the address.
  [[nodiscard]] static Result<std::unique_ptr<EventPublisher>> listen(const net::Url& url,
                                                                      message::ContextParts parts);

  [[nodiscard]] bool wanted() const override;
  void publish(RunNumber run, const storage::BuiltEvent& event) override;

  [[nodiscard]] const net::Url& url() const { return publisher_->url(); }
  [[nodiscard]] std::uint64_t published() const { return published_; } // events
  // Events that a reader did not get, for each of them; once, if it was given to none because of
  // large_events_max.
  [[nodiscard]] std::uint64_t skipped() const { return publisher_->counters().skipped + withheld_; }
  [[nodiscard]] std::uint64_t large_bytes() const { return large_.bytes(); } // under way

private:
  explicit EventPublisher(message::ContextParts parts);
  void add_reader(message::PeerId id);
  void remove_reader(message::PeerId id);
  void log_reader(std::string_view name, std::string_view what);
  void log_skipped();
  void give(message::Tag tag, std::span<const std::byte> event, const memory::View& large);

  LogFunction log_;
  LogLimiter lines_;
  std::map<message::PeerId, std::string> readers_; // names, human-readable
  message::Context context_;
  std::unique_ptr<message::Publisher> publisher_;
  std::vector<std::byte> small_ = std::vector<std::byte>(small_event_max); // bytes of an event
  memory::BoundedHeap large_{large_events_max};
  std::uint64_t published_ = 0;
  std::uint64_t withheld_ = 0;
  std::uint64_t skipped_logged_ = 0;
  Time next_line_{};
};

} // namespace fanin::executive
