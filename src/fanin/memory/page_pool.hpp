// Fixed pools of fixed-size pages, made once at start (Forrest 2014, section 3.2: pools and buffer
// loaning). A page is written through a Loan by exactly one holder; what has been written is handed
// on as counted read-only Views. When the last holder lets go, the page goes home. Exhaustion is
// backpressure: take() gives nothing, and nobody allocates.
//
// Thread: a pool, its loans, references and views belong to one thread, its home loop. Another
// thread or process is given one View to keep alive on its behalf and says when it is done; only
// the home loop touches the count.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "fanin/base/assert.hpp"
#include "fanin/base/result.hpp"
#include "fanin/memory/arena.hpp"

namespace fanin::memory {

struct Page;

// Where pages belong: a pool of this process, or what another process has lent (net/shm/).
class PageHome {
public:
  virtual ~PageHome() = default;
  PageHome(const PageHome&) = delete;
  PageHome& operator=(const PageHome&) = delete;
  // Of one page; bytes. Only a pool's pages can be written, hence taken on loan.
  [[nodiscard]] std::uint32_t page_size() const { return page_size_; }
  // What its pages lie in, so that a transport can hand it to others or to a device, once; null: in
  // nothing of this process.
  [[nodiscard]] const Arena* arena() const { return arena_of_pages_; }

protected:
  PageHome() = default;
  std::uint32_t page_size_ = 0;
  const Arena* arena_of_pages_ = nullptr;

private:
  friend class PageRef;
  virtual void put(Page* page) = 0; // the last holder has let go
};

struct Page {
  std::byte* data = nullptr;
  PageHome* home = nullptr;
  std::uint32_t references = 0;
  std::uint32_t index = 0; // within the pool
  std::uint64_t lends = 0; // how often it was taken: tells two loans of one page apart
  bool read_elsewhere = false; // since it was taken, by another process
};

// A counted share of a page.
class PageRef {
public:
  PageRef() = default;
  explicit PageRef(Page* page) : page_(page) { // adds a reference
    if (page_ != nullptr) ++page_->references;
  }
  PageRef(const PageRef& other) : PageRef(other.page_) {}
  PageRef(PageRef&& other) noexcept : page_(std::exchange(other.page_, nullptr)) {}
  PageRef& operator=(PageRef other) noexcept {
    std::swap(page_, other.page_);
    return *this;
  }
  ~PageRef() { reset(); }
  inline void reset();
  [[nodiscard]] Page* get() const { return page_; }
  explicit operator bool() const { return page_ != nullptr; }

private:
  Page* page_ = nullptr;
};

// Read-only bytes inside a page, kept alive by their share of it.
struct View {
  PageRef page;
  std::uint32_t offset = 0;
  std::uint32_t size = 0;

  [[nodiscard]] const std::byte* data() const { return page.get()->data + offset; }
  [[nodiscard]] std::span<const std::byte> bytes() const {
    return size == 0 ? std::span<const std::byte>{} : std::span{data(), size};
  }
  [[nodiscard]] View part(std::uint32_t from, std::uint32_t length) const {
    FANIN_ASSERT(from <= size && length <= size - from);
    return View{page, offset + from, length};
  }
};

// The right to write into a page. What lies below a frozen view's end must not be written again.
class Loan {
public:
  Loan() = default;
  explicit Loan(Page* page) : page_(page) {}
  [[nodiscard]] std::byte* data() const { return page_.get()->data; }
  [[nodiscard]] inline std::uint32_t size() const;
  [[nodiscard]] View freeze(std::uint32_t offset, std::uint32_t length) const {
    FANIN_ASSERT(offset <= size() && length <= size() - offset);
    return View{page_, offset, length};
  }
  explicit operator bool() const { return static_cast<bool>(page_); }
  void reset() { page_.reset(); }
  [[nodiscard]] const Page* page() const { return page_.get(); }
  [[nodiscard]] Page* page() { return page_.get(); }

  Loan(Loan&&) = default;
  Loan& operator=(Loan&&) = default;
  Loan(const Loan&) = delete;
  Loan& operator=(const Loan&) = delete;

private:
  PageRef page_;
};

struct PoolOptions {
  std::uint32_t page_size = 0; // bytes, a multiple of 4096
  std::uint32_t pages = 0;
  ArenaOptions arena;
};

class PagePool final : public PageHome {
public:
  // Reserves and (unless arena.reserve_only) populates the memory. Errors: exhausted, usage.
  [[nodiscard]] static Result<std::unique_ptr<PagePool>> make(const PoolOptions& options);
  ~PagePool() override; // asserts that every page is home

  // The page used last, which is the one in cache; empty when all are lent. Pages that another
  // process has read come last, the one that has rested longest first: they are in another core's
  // cache, and writing to them is slow until they have left it.
  [[nodiscard]] Loan take() {
    if (available_ == 0) return {};
    Page* page = free_[at(--available_)];
    page->read_elsewhere = false;
    ++page->lends;
    if (available_ < available_min_) available_min_ = available_;
    return Loan{page};
  }
  [[nodiscard]] std::uint32_t available() const { return available_; }
  [[nodiscard]] std::uint32_t available_min() const { return available_min_; } // since start
  [[nodiscard]] std::uint32_t pages() const { return static_cast<std::uint32_t>(pages_.size()); }

private:
  PagePool(Arena arena, std::uint32_t page_size, std::uint32_t pages);
  void put(Page* page) override {
    if (page->read_elsewhere) {
      first_ = (first_ == 0 ? pages() : first_) - 1;
      free_[first_] = page;
      ++available_;
    } else {
      free_[at(available_++)] = page;
    }
  }
  [[nodiscard]] std::uint32_t at(std::uint32_t number) const { // in free_
    const std::uint32_t index = first_ + number;
    return index < pages() ? index : index - pages();
  }

  Arena arena_;
  std::vector<Page> pages_;
  std::vector<Page*> free_; // a ring: taken from its end
  std::uint32_t first_ = 0;
  std::uint32_t available_;
  std::uint32_t available_min_;
};

inline void PageRef::reset() {
  if (page_ == nullptr) return;
  Page* page = std::exchange(page_, nullptr);
  if (--page->references == 0) page->home->put(page);
}

inline std::uint32_t Loan::size() const { return page_.get()->home->page_size(); }

} // namespace fanin::memory
