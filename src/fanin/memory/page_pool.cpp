#include "fanin/memory/page_pool.hpp"

#include <fmt/format.h>

#include "fanin/base/try.hpp"
#include "fanin/base/units.hpp"

namespace fanin::memory {

Result<std::unique_ptr<PagePool>> PagePool::make(const PoolOptions& options) {
  if (options.page_size == 0 || options.page_size % 4096 != 0) {
    return fail(ErrorKind::usage, fmt::format("page size {} is not a multiple of 4 KiB",
                                              format_size(options.page_size)));
  }
  if (options.pages == 0) return fail(ErrorKind::usage, "a pool needs at least one page");
  auto arena =
      FANIN_TRY(Arena::make(std::size_t{options.page_size} * options.pages, options.arena));
  auto pool =
      std::unique_ptr<PagePool>(new PagePool(std::move(arena), options.page_size, options.pages));
  pool->is_blank_ = options.blank;
  return pool;
}

PagePool::PagePool(std::unique_ptr<Arena> arena, std::uint32_t page_size, std::uint32_t pages)
    : arena_(std::move(arena)), pages_(pages), free_(pages), available_(pages) {
  page_size_ = page_size;
  arena_of_pages_ = arena_.get();
  for (std::uint32_t i = 0; i < pages; ++i) {
    pages_[i].data = arena_->data() + std::size_t{i} * page_size;
    pages_[i].home = this;
    pages_[i].index = i;
    free_[pages - 1 - i] = &pages_[i]; // page 0 goes first
  }
}

PagePool::~PagePool() {
  const bool every_page_is_home = available_ == pages_.size();
  FANIN_ASSERT(every_page_is_home);
}

} // namespace fanin::memory
