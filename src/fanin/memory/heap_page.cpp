#include "fanin/memory/heap_page.hpp"

#include <cstring>
#include <utility>

namespace fanin::memory {

HeapPage::HeapPage(std::uint32_t size, std::shared_ptr<std::uint64_t> sum)
    : bytes_(std::make_unique_for_overwrite<std::byte[]>(size)), sum_(std::move(sum)) {
  if (sum_) *sum_ += size;
  page_size_ = size;
  page_.data = bytes_.get();
  page_.home = this;
}

HeapPage::~HeapPage() {
  if (sum_) *sum_ -= page_size_;
}

View HeapPage::make(std::uint32_t size, std::byte*& data, std::shared_ptr<std::uint64_t> sum) {
  auto* const made = new HeapPage(size, std::move(sum)); // put() deletes it
  data = made->bytes_.get();
  return View{PageRef{&made->page_}, 0, size};
}

View HeapPage::copy(std::span<const std::byte> bytes) {
  std::byte* data = nullptr;
  View view = make(static_cast<std::uint32_t>(bytes.size()), data);
  if (!bytes.empty()) std::memcpy(data, bytes.data(), bytes.size());
  return view;
}

} // namespace fanin::memory
