// The messages of one connection that the kernel has not taken yet, with their headers. Entries
// live in chunks that a transport's connections share, so that an idle connection owns none and a
// busy one does not allocate.
#pragma once

#include <sys/uio.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "fanin/net/tcp/frame.hpp"
#include "fanin/net/transport.hpp"

namespace fanin::net::tcp {

class SendQueue {
public:
  struct Entry {
    std::array<std::byte, alignment + header_size> prefix{}; // ends with the header
    std::uint32_t prefix_size = 0;                           // with the padding in front of it
    std::uint32_t payload_size = 0;
    std::uint32_t extent_count = 0;
    std::array<memory::View, max_extents> extents;
  };
  static constexpr std::size_t entries_per_chunk = 16;
  struct Chunk {
    std::array<Entry, entries_per_chunk> entries;
    std::unique_ptr<Chunk> next;
  };
  // Chunks not in use; outlives the queues.
  class Store {
  public:
    Store() = default;
    ~Store();
    Store(const Store&) = delete;
    Store& operator=(const Store&) = delete;
    [[nodiscard]] std::unique_ptr<Chunk> take();
    void put(std::unique_ptr<Chunk> chunk);

  private:
    std::unique_ptr<Chunk> free_;
  };

  explicit SendQueue(Store& store) : store_(&store) {}
  ~SendQueue() { clear(); }
  SendQueue(const SendQueue&) = delete;
  SendQueue& operator=(const SendQueue&) = delete;

  // `payload_size` is the sum of the extents.
  void push(std::span<const memory::View> extents, std::uint32_t payload_size);
  // `taken`: the peer's messages that this side has taken.
  void push_end_of_stream(std::uint64_t taken);

  [[nodiscard]] bool empty() const { return entries_ == 0; }
  // Once the end of the stream was pushed: whether a message is still before it.
  [[nodiscard]] bool holds_messages() const { return entries_ > 1; }
  // Payload, and 64 bytes for each message, so that messages of no size are bounded too.
  [[nodiscard]] std::uint64_t charged_bytes() const { return charged_bytes_; }
  [[nodiscard]] static std::uint64_t charge(std::uint64_t payload_size) {
    return payload_size + 64;
  }

  // What to write next; returns how many pieces, and in `all` whether that is everything.
  [[nodiscard]] std::size_t gather(std::span<iovec> pieces, bool& all) const;
  // The kernel has taken so many bytes. Returns how many messages were completed; their views are
  // released.
  std::size_t consume(std::size_t bytes);
  void clear();

private:
  Entry& push_entry(std::uint32_t length);
  void pop();

  Store* store_;
  std::unique_ptr<Chunk> first_;
  Chunk* last_ = nullptr;
  std::size_t head_ = 0; // index in first_
  std::size_t tail_ = 0; // index after the last in last_
  std::size_t entries_ = 0;
  std::size_t sent_of_head_ = 0; // bytes of the first entry that are gone
  std::uint64_t charged_bytes_ = 0;
  std::uint32_t padding_ = 0; // before the next header
};

} // namespace fanin::net::tcp
