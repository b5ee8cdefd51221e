#include "fanin/memory/heap_page.hpp"

#include <cstring>

namespace fanin::memory {

HeapPage::HeapPage(std::uint32_t size) : bytes_(std::make_unique_for_overwrite<std::byte[]>(size)) {
  page_size_ = size;
  page_.data = bytes_.get();
  page_.home = this;
}

View HeapPage::make(std::uint32_t size, std::byte*& data) {
  auto* const made = new HeapPage(size); // put() deletes it
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
