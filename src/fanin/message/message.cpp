#include "fanin/message/message.hpp"

#include <cstring>
#include <iterator>

#include "fanin/memory/heap_page.hpp"

namespace fanin::message {

void Message::join() {
  std::byte* at = nullptr;
  memory::View whole = memory::HeapPage::make(static_cast<std::uint32_t>(size()), at);
  for (std::size_t i = 0; i < pieces(); ++i) {
    const auto bytes = piece(i).bytes();
    if (!bytes.empty()) std::memcpy(at, bytes.data(), bytes.size());
    at += bytes.size();
  }
  view_ = std::move(whole);
  more_.clear();
}

void Message::receive(PeerId peer, memory::View view, memory::View rest) {
  view_ = std::move(view);
  more_.clear();
  if (rest.size > 0) more_.push_back(std::move(rest));
  peer_ = peer;
}

void Message::receive(PeerId peer, std::vector<memory::View>& pieces) {
  view_ = std::move(pieces.front());
  more_.assign(std::make_move_iterator(pieces.begin() + 1), std::make_move_iterator(pieces.end()));
  peer_ = peer;
}

void Message::release() {
  view_ = {};
  more_.clear();
}

bool Message::take_tag() {
  if (view_.size < sizeof tag_) return false;
  std::memcpy(&tag_, view_.data(), sizeof tag_);
  view_.offset += static_cast<std::uint32_t>(sizeof tag_);
  view_.size -= static_cast<std::uint32_t>(sizeof tag_);
  if (view_.size > 0 || more_.empty()) return true;
  view_ = std::move(more_.front()); // the tag was a piece of its own
  more_.erase(more_.begin());
  return true;
}

} // namespace fanin::message
