#include "fanin/net/stream/stream.hpp"

#include <algorithm>
#include <climits>

#include "fanin/base/assert.hpp"
#include "fanin/net/tcp_socket.hpp"

namespace fanin::net {

Watchable::~Watchable() {
  for (StreamWatch* const watch : std::vector(watches_)) watch->remove(*this);
}

StreamWatch::~StreamWatch() {
  for (Watchable* const one : members_) std::erase(one->watches_, this);
}

Result<> StreamWatch::add(Watchable& one) {
  if (auto begun = begin(one); !begun) return begun;
  members_.push_back(&one);
  one.watches_.push_back(this);
  return {};
}

void StreamWatch::remove(Watchable& one) {
  if (std::erase(members_, &one) == 0) return;
  std::erase(one.watches_, this);
  end(one);
}

void StreamWatch::wake(Watchable& one) {
  for (StreamWatch* const watch : one.watches_) {
    watch->readable_ = true;
    if (watch->wake_) watch->wake_();
    wake(*watch);
  }
}

std::string Transfer::why() const { return error_text(error); }

Transfer Stream::read(std::span<const iovec> room) {
  const bool has_room =
      std::ranges::any_of(room, [](const iovec& part) { return part.iov_len > 0; });
  FANIN_ASSERT(has_room && room.size() <= IOV_MAX);
  return read_parts(room);
}

Transfer Stream::write(std::span<const iovec> bytes, bool more_follows) {
  FANIN_ASSERT(bytes.size() <= IOV_MAX);
  return write_parts(bytes, more_follows);
}

Transfer Stream::read(std::span<std::byte> room) {
  const iovec part{room.data(), room.size()};
  return read(std::span(&part, 1));
}

Transfer Stream::write(std::span<const std::byte> bytes, bool more_follows) {
  // The type is that of readv() too: it has no const.
  const iovec part{const_cast<std::byte*>(bytes.data()), bytes.size()};
  return write(std::span(&part, 1), more_follows);
}

} // namespace fanin::net
