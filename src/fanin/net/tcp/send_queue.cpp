#include "fanin/net/tcp/send_queue.hpp"

#include <algorithm>

#include "fanin/base/assert.hpp"
#include "fanin/memory/heap_page.hpp"

namespace fanin::net::tcp {
namespace {

// iovec has no const; the kernel only reads.
void* writable(const std::byte* data) { return const_cast<std::byte*>(data); }

} // namespace

SendQueue::Store::~Store() {
  while (free_) free_ = std::move(free_->next); // one by one: a long chain would recurse
}

std::unique_ptr<SendQueue::Chunk> SendQueue::Store::take() {
  if (!free_) return std::make_unique<Chunk>();
  auto chunk = std::move(free_);
  free_ = std::move(chunk->next);
  return chunk;
}

void SendQueue::Store::put(std::unique_ptr<Chunk> chunk) {
  chunk->next = std::move(free_);
  free_ = std::move(chunk);
}

SendQueue::Entry& SendQueue::push_entry(std::uint32_t length) {
  if (!first_) {
    first_ = store_->take();
    last_ = first_.get();
    head_ = tail_ = 0;
  } else if (tail_ == entries_per_chunk) {
    last_->next = store_->take();
    last_ = last_->next.get();
    tail_ = 0;
  }
  Entry& entry = last_->entries[tail_++];
  ++entries_;
  encode_header(std::span<std::byte, header_size>(entry.prefix.data() + alignment, header_size),
                length);
  entry.prefix_size = padding_ + header_size;
  return entry;
}

void SendQueue::push(std::span<const memory::View> extents, std::uint32_t payload_size) {
  Entry& entry = push_entry(payload_size);
  entry.payload_size = payload_size;
  entry.extent_count = static_cast<std::uint32_t>(extents.size());
  std::copy(extents.begin(), extents.end(), entry.extents.begin());
  padding_ = padding_after(payload_size);
  charged_bytes_ += charge(payload_size);
}

void SendQueue::push_end_of_stream(std::uint64_t taken) {
  std::array<std::byte, taken_size> bytes;
  encode_taken(bytes, taken);
  Entry& entry = push_entry(end_of_stream);
  entry.payload_size = taken_size;
  entry.extent_count = 1;
  entry.extents[0] = memory::HeapPage::copy(bytes);
  charged_bytes_ += charge(taken_size);
}

std::size_t SendQueue::gather(std::span<iovec> pieces, bool& all) const {
  std::size_t count = 0;
  std::size_t skip = sent_of_head_;
  const auto add = [&](const std::byte* data, std::size_t size) {
    if (skip >= size) {
      skip -= size;
    } else {
      pieces[count++] = {writable(data + skip), size - skip};
      skip = 0;
    }
  };
  const Chunk* chunk = first_.get();
  std::size_t index = head_;
  std::size_t left = entries_;
  for (; left > 0 && count + 1 + max_extents <= pieces.size(); --left) {
    const Entry& entry = chunk->entries[index];
    add(entry.prefix.data() + entry.prefix.size() - entry.prefix_size, entry.prefix_size);
    for (std::size_t i = 0; i < entry.extent_count; ++i) {
      if (entry.extents[i].size > 0) add(entry.extents[i].data(), entry.extents[i].size);
    }
    if (++index == entries_per_chunk) {
      chunk = chunk->next.get();
      index = 0;
    }
  }
  all = left == 0;
  return count;
}

std::size_t SendQueue::consume(std::size_t bytes) {
  std::size_t completed = 0;
  sent_of_head_ += bytes;
  while (entries_ > 0) {
    const Entry& entry = first_->entries[head_];
    const std::size_t size = std::size_t{entry.prefix_size} + entry.payload_size;
    if (sent_of_head_ < size) break;
    sent_of_head_ -= size;
    pop();
    ++completed;
  }
  FANIN_ASSERT(entries_ > 0 || sent_of_head_ == 0); // the kernel takes no more than there is
  return completed;
}

void SendQueue::pop() {
  Entry& entry = first_->entries[head_];
  for (std::size_t i = 0; i < entry.extent_count; ++i) entry.extents[i] = {};
  charged_bytes_ -= charge(entry.payload_size);
  entry.extent_count = 0;
  --entries_;
  if (++head_ == entries_per_chunk || entries_ == 0) {
    auto rest = std::move(first_->next);
    store_->put(std::move(first_));
    first_ = std::move(rest);
    head_ = 0;
  }
  if (!first_) last_ = nullptr;
}

void SendQueue::clear() {
  while (entries_ > 0) pop();
  sent_of_head_ = 0;
}

} // namespace fanin::net::tcp
