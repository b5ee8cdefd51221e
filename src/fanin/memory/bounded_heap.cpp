#include "fanin/memory/bounded_heap.hpp"

#include <limits>
#include <utility>

namespace fanin::memory {

class BoundedHeap::CountedPage final : public PageHome {
public:
  CountedPage(std::uint32_t size, std::shared_ptr<std::uint64_t> sum)
      : memory_(std::make_unique_for_overwrite<std::byte[]>(size)), sum_(std::move(sum)) {
    page_size_ = size;
    page_.data = memory_.get();
    page_.home = this;
    *sum_ += size;
  }
  ~CountedPage() override { *sum_ -= page_size_; }
  CountedPage(const CountedPage&) = delete;
  CountedPage& operator=(const CountedPage&) = delete;
  [[nodiscard]] Page* page() { return &page_; }

private:
  void put(Page*) override { delete this; }

  std::unique_ptr<std::byte[]> memory_;
  std::shared_ptr<std::uint64_t> sum_; // of the heap, which may be gone before
  Page page_;
};

View BoundedHeap::make(std::uint64_t size, std::byte*& data) {
  if (size > bytes_max_ - *bytes_ || size > std::numeric_limits<std::uint32_t>::max()) return {};
  const auto page_size = static_cast<std::uint32_t>(size);
  auto* const made = new CountedPage(page_size, bytes_); // put() deletes it
  data = made->page()->data;
  return View{PageRef{made->page()}, 0, page_size};
}

} // namespace fanin::memory
