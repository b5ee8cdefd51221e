/// \file
/// Fixed pools of pages of one size, allocated once at the start (Forrest 2014, section 3.2: pools
/// and buffer loaning). Exactly one holder writes a page, through a Loan. What was written is
/// passed on as counted read-only Views. With the last View the page returns to its pool. An empty
/// pool is backpressure: take() returns nothing, and nothing is allocated.
///
/// Thread: a pool, its loans, references and views belong to one thread, its home loop. For another
/// thread or process the home loop keeps one View alive until that thread or process says that it
/// is done; only the home loop touches the count.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "fanin/base/assert.hpp"
#include "fanin/base/export.hpp"
#include "fanin/base/result.hpp"
#include "fanin/memory/arena.hpp"

namespace fanin::memory {

struct Page;

/// The owner of pages: a pool of this process, or memory that another process has lent (net/shm/).
class PageHome {
public:
  virtual ~PageHome() = default;
  PageHome(const PageHome&) = delete;
  PageHome& operator=(const PageHome&) = delete;
  /// Size of one page in bytes. Only pages of a pool can be taken on loan and written.
  [[nodiscard]] std::uint32_t page_size() const { return page_size_; }
  /// The arena of its pages, so that a transport can register it once, with other processes or a
  /// device. Null: the pages are in no memory of this process.
  [[nodiscard]] const Arena* arena() const { return arena_of_pages_; }
  [[nodiscard]] bool is_blank() const { return is_blank_; } ///< see PoolOptions

protected:
  PageHome() = default;
  bool is_blank_ = false;
  std::uint32_t page_size_ = 0;
  const Arena* arena_of_pages_ = nullptr;

private:
  friend class PageRef;
  virtual void put(Page* page) = 0; // called when the last view is released
};

struct Page {
  std::byte* data = nullptr;
  PageHome* home = nullptr;
  std::uint32_t references = 0;
  std::uint32_t index = 0; ///< within the pool
  std::uint64_t lends = 0; ///< how often it was taken; distinguishes two loans of one page
  bool read_elsewhere = false; ///< another process has read it since it was taken
};

/// A counted share of a page.
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

/// Read-only bytes in a page. The view holds a share of the page, which keeps it alive.
struct View {
  PageRef page;
  std::uint32_t offset = 0;
  std::uint32_t size = 0;

  [[nodiscard]] const std::byte* data() const { return page.get()->data + offset; }
  [[nodiscard]] std::span<const std::byte> bytes() const {
    return size == 0 ? std::span<const std::byte>{} : std::span{data(), size};
  }
  [[nodiscard]] View subview(std::uint32_t from, std::uint32_t length) const {
    FANIN_ASSERT(from <= size && length <= size - from);
    return View{page, offset + from, length};
  }
};

/// The right to write into a page. Bytes below the end of a frozen view must not be written again.
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
  std::uint32_t page_size = 0; ///< bytes, a multiple of 4096
  std::uint32_t pages = 0;
  bool blank = false; ///< its bytes mean nothing: a network in memory leaves their copies out
  ArenaOptions arena;
};

class FANIN_API PagePool final : public PageHome {
public:
  /// Reserves and (unless arena.reserve_only) populates the memory. Errors: exhausted, usage.
  [[nodiscard]] static Result<std::unique_ptr<PagePool>> make(const PoolOptions& options);
  ~PagePool() override; ///< asserts that every page is home

  /// Lends a page; empty if all are lent. It lends the page used last, which is in cache. Pages
  /// that another process has read are lent last, and of those the one unused for longest: they are
  /// in another core's cache, and writing to them is slow until they have left it.
  [[nodiscard]] Loan take() {
    if (available_ == 0) return {};
    Page* page = free_[at(--available_)];
    page->read_elsewhere = false;
    ++page->lends;
    return Loan{page};
  }
  [[nodiscard]] std::uint32_t available() const { return available_; }
  [[nodiscard]] std::uint32_t pages() const { return static_cast<std::uint32_t>(pages_.size()); }

private:
  PagePool(std::unique_ptr<Arena> arena, std::uint32_t page_size, std::uint32_t pages);
  void put(Page* page) override {
    FANIN_ASSERT(available_ < pages()); // each loan comes back once
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

  std::unique_ptr<Arena> arena_;
  std::vector<Page> pages_;
  std::vector<Page*> free_; // a ring; pages are taken from its end
  std::uint32_t first_ = 0;
  std::uint32_t available_;
};

inline void PageRef::reset() {
  if (page_ == nullptr) return;
  Page* page = std::exchange(page_, nullptr);
  if (--page->references == 0) page->home->put(page);
}

inline std::uint32_t Loan::size() const { return page_.get()->home->page_size(); }

} // namespace fanin::memory
