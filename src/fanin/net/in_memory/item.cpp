#include "fanin/net/in_memory/item.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "fanin/base/assert.hpp"
#include "fanin/memory/copy.hpp"
#include "fanin/wire/checksum.hpp"

namespace fanin::net::in_memory {

// --- Item ---

std::uint32_t Item::checksum_of_extents() const {
  std::uint32_t sum = 0;
  for (std::size_t i = 0; i < extent_count; ++i) sum = wire::crc32c(extents[i].bytes(), sum);
  return sum;
}

void Item::copy_to(std::byte* to) const {
  if (!owned.empty()) {
    std::memcpy(to, owned.data(), owned.size());
    return;
  }
  for (const memory::View& extent : std::span(extents).first(extent_count)) {
    if (extent.size > 0 && !extent.page.get()->home->is_blank()) memory::copy(to, extent.bytes());
    to += extent.size;
  }
}

void Item::release_extents() {
  for (std::size_t i = 0; i < extent_count; ++i) extents[i] = {};
  extent_count = 0;
  owned.clear();
}

void Item::own_bytes() {
  std::vector<std::byte> bytes(size);
  copy_to(bytes.data());
  release_extents();
  owned = std::move(bytes);
}

void Item::check_untouched() const {
  if (extent_count == 0) return;
  const bool memory_of_a_message_unchanged_until_its_send_completed =
      checksum_of_extents() == checksum;
  FANIN_ASSERT(memory_of_a_message_unchanged_until_its_send_completed);
}

// --- End: sending ---

void End::add_under_way(Item& item) {
  (first_under_way == nullptr ? first_under_way : last_under_way->under_way_next) = &item;
  last_under_way = &item;
}

Item& End::take_under_way() {
  Item& item = *first_under_way;
  first_under_way = std::exchange(item.under_way_next, nullptr);
  return item;
}

void End::add_outstanding(Item& item) {
  item.outstanding_next = outstanding;
  if (outstanding != nullptr) outstanding->outstanding_previous = &item;
  outstanding = &item;
}

void End::remove_outstanding(Item& item) {
  if (item.outstanding_previous != nullptr) {
    item.outstanding_previous->outstanding_next = item.outstanding_next;
  } else if (outstanding == &item) {
    outstanding = item.outstanding_next;
  }
  if (item.outstanding_next != nullptr) {
    item.outstanding_next->outstanding_previous = item.outstanding_previous;
  }
  item.outstanding_next = nullptr;
  item.outstanding_previous = nullptr;
}

bool End::has_untaken() const {
  for (const Item* item = outstanding; item != nullptr; item = item->outstanding_next) {
    if (item->kind == ItemKind::message) return true;
  }
  return false;
}

void End::drop_outstanding() {
  while (outstanding != nullptr) {
    Item& item = *outstanding;
    remove_outstanding(item);
    item.release_extents();
    item.dropped = true;
  }
}

// --- End: receiving ---

void End::add_arrived(Item& item) {
  (last == nullptr ? first : last->next) = &item;
  last = &item;
}

Item& End::take_arrived() {
  Item& item = *first;
  first = item.next;
  if (first == nullptr) last = nullptr;
  item.next = nullptr;
  return item;
}

bool End::deliverable() const {
  if (to_announce() || writable_pending) return true;
  if (first == nullptr) return false;
  const Item& item = *first;
  if (item.kind != ItemKind::message || item.dropped || item.size == 0) return true;
  if (posted_most == 0) return filler->can_reserve(item.size);
  return !posted.empty() || options.receive_pool->available() > 0;
}

bool End::receive(const Item& item, Event& event) {
  if (item.size == 0) return true;
  if (posted_most == 0) return receive_in_shared_page(item, event.message);
  if (!receive_where_posted(item, event.message)) return false;
  const std::uint32_t first_size = item.extents[0].size;
  if (item.extent_count == 2 && first_size > 0 && first_size < item.size) {
    event.rest = event.message.subview(first_size, item.size - first_size);
    event.message = event.message.subview(0, first_size);
  }
  return true;
}

bool End::receive_in_shared_page(const Item& item, memory::View& message) const {
  message = filler->make(item.size, [&](std::byte* to) { item.copy_to(to); });
  return static_cast<bool>(message.page);
}

// If the message fills less than half of the page, it is moved to a page that small messages share,
// and the posted one stays.
bool End::receive_where_posted(const Item& item, memory::View& message) {
  post_receives();
  if (posted.empty()) return false;
  memory::Loan& page = posted.back();
  item.copy_to(page.data());
  if (item.size < page.size() / 2) {
    message = filler->copy({page.data(), item.size});
    if (message.page) {
      if (!identified) posted.clear();
      return true;
    }
  }
  message = page.freeze(0, item.size);
  posted.pop_back();
  if (identified) post_receives();
  return true;
}

void End::post_receives() {
  const std::uint32_t wanted = identified ? posted_most : std::min(posted_most, 1U);
  while (posted.size() < wanted) {
    memory::Loan page = options.receive_pool->take();
    if (!page) return;
    posted.push_back(std::move(page));
  }
}

} // namespace fanin::net::in_memory
