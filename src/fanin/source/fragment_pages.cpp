#include "fanin/source/fragment_pages.hpp"

#include <utility>

#include "fanin/base/assert.hpp"

namespace fanin::source {

void FragmentPages::clear() {
  for (auto& page : held_) page.reset();
  page_.reset();
  held_first_ = page_end_ = position_ = end_ = base_ = 0;
}

void FragmentPages::next_page() {
  position_ = page_end_;
  page_ = pool_.take();
  FANIN_ASSERT(page_);
  held(page_end_ / page_size_) = page_.freeze(0, 0).page;
  page_end_ += page_size_;
}

// Of several pages the last takes the place of the first, and the others go home.
void FragmentPages::take_back(std::uint64_t position) {
  const std::uint64_t first = position / page_size_;
  std::uint64_t last = page_end_ / page_size_ - 1;
  if (position < page_end_ && first != last) {
    held(first) = std::move(held(last));
    for (; last > first; --last) held(last).reset();
    page_end_ = (first + 1) * page_size_;
  }
  position_ = position;
}

// Where nothing is needed any more, the page being filled goes as well: it could be the one that is
// missing.
bool FragmentPages::make_room(std::uint32_t size, bool unused) {
  if (size <= room() && page_) return true;
  const bool empty = page_ && position_ + page_size_ == page_end_; // a fragment was taken back
  const std::uint32_t pages = std::max(1U, (size + page_size_ - 1) / page_size_);
  if (empty && pool_.available() + 1 >= pages) return true;
  if (pool_.available() < pages && unused) {
    release_pages_until(page_end_ / page_size_);
    page_.reset();
    position_ = end_ = base_ = page_end_;
  }
  if (pool_.available() < pages) return false;
  next_page();
  return true;
}

memory::View FragmentPages::view(std::uint64_t position, std::uint32_t size) const {
  if (size == 0) return {};
  const auto& page = held_[position / page_size_ % held_.size()];
  return memory::View{page, static_cast<std::uint32_t>(position % page_size_), size};
}

// The page being filled stays, and so does one that holds a byte of a later event.
void FragmentPages::release_until(std::uint64_t position) {
  base_ = position;
  const std::uint64_t newest = position_ == 0 ? 0 : position_ - 1;
  release_pages_until(std::min(base_, newest) / page_size_);
}

void FragmentPages::begin_at(std::uint64_t position) {
  base_ = end_ = position;
  release_pages_until(position / page_size_);
}

} // namespace fanin::source
