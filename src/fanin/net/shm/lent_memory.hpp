// The memory of a peer, mapped read-only, and what of it is in use here: messages that it lent, as
// pages whose last holder gives them back. It stays mapped until the last of them is gone, whatever
// happens to the connection or the peer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "fanin/base/descriptor.hpp"
#include "fanin/base/result.hpp"
#include "fanin/memory/page_pool.hpp"
#include "fanin/net/shm/outbox.hpp"

namespace fanin::net::shm {

struct Unmap {
  std::uint64_t size = 0;
  void operator()(std::byte* data) const;
};

// A mapping of a memfd that its owner cannot shrink.
class Mapping {
public:
  Mapping() = default;
  // Errors: malformed (smaller than `size`, or not sealed against shrinking), exhausted (this
  // process has no address space for it).
  [[nodiscard]] static Result<Mapping> make(const Descriptor& file, std::uint64_t size);
  [[nodiscard]] const std::byte* data() const { return data_.get(); }
  [[nodiscard]] std::uint64_t size() const { return data_.get_deleter().size; }

private:
  std::unique_ptr<std::byte, Unmap> data_; // only ever read
};

// Thread: its transport's.
class LentMemory final : public memory::PageHome {
public:
  struct Owner { // after it, a LentMemory deletes itself when its last page is returned
    void operator()(LentMemory* memory) const { memory->leave(); }
  };
  using Pointer = std::unique_ptr<LentMemory, Owner>;
  // `given_back` is told when all pieces of a message are gone, while it is owned.
  [[nodiscard]] static Pointer make(std::function<void(Return)> given_back) {
    return Pointer(new LentMemory(std::move(given_back)));
  }

  // The peer's next memory. Errors: as of Mapping::make, and malformed after memories_max.
  [[nodiscard]] Result<> add(const Descriptor& file, std::uint64_t size);
  [[nodiscard]] std::uint32_t memories() const {
    return static_cast<std::uint32_t>(memories_.size());
  }
  [[nodiscard]] bool contains(const Piece& piece) const;

  // The pieces, which contains() has accepted, as views. The message is returned under `as` when
  // the last view is gone.
  void lend(std::span<const Piece> pieces, Return as, std::span<memory::View, pieces_max> views);
  [[nodiscard]] std::uint32_t lent() const { return lent_; } // messages

  static constexpr std::uint32_t memories_max = 1024;

private:
  struct Message {
    memory::Page pages[pieces_max];
    std::uint32_t held = 0; // of the pages
    Return as;
  };
  explicit LentMemory(std::function<void(Return)> given_back)
      : given_back_(std::move(given_back)) {}
  ~LentMemory() override = default;
  void put(memory::Page* page) override;
  void leave();

  std::function<void(Return)> given_back_; // null: nobody owns this any more
  std::vector<Mapping> memories_;
  std::deque<Message> messages_; // stay where they are
  std::vector<std::uint32_t> free_;
  std::uint32_t lent_ = 0;
};

} // namespace fanin::net::shm
