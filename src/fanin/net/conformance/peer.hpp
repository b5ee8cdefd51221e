/// \file
/// One side of a conformance test: sends messages of known content and checks what it gets.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <vector>

#include <gtest/gtest.h>

#include "fanin/base/random.hpp"
#include "fanin/net/transport.hpp"

namespace fanin::net::conformance {

inline constexpr std::uint32_t page_size = 16384;

/// What all messages have, each from another byte on, again and again. Its size is a prime number
/// above that of pages, so that nothing is taken for what lies some pages away.
inline std::span<const std::byte> noise() {
  static const std::vector<std::byte> bytes = [] {
    std::vector<std::byte> made(65521);
    Random random(1);
    for (std::byte& byte : made) byte = static_cast<std::byte>(random.below(256));
    return made;
  }();
  return bytes;
}

/// The content of a message from byte `at` on, as far as it is in one piece: it follows from the
/// number.
inline std::span<const std::byte> contents(std::uint64_t number, std::size_t at) {
  const std::size_t size = noise().size();
  return noise().subspan((number * 0x9e3779b97f4a7c15U % size + at) % size);
}
inline std::byte content(std::uint64_t number, std::size_t at) {
  return contents(number, at).front();
}
inline void fill(std::span<std::byte> message, std::uint64_t number) {
  for (std::size_t at = 0; at < message.size();) {
    const auto part = contents(number, at);
    const std::size_t size = std::min(part.size(), message.size() - at);
    std::memcpy(message.data() + at, part.data(), size);
    at += size;
  }
}

struct PeerPools {
  std::uint32_t receive_pages = 128;
  std::uint32_t send_pages = 16;
  std::uint32_t receive_page_size = page_size;
  std::uint32_t send_page_size = page_size;
  bool shared = false; ///< messages are sent from memory that other processes may read
};

inline std::unique_ptr<memory::PagePool> make_pool(const memory::PoolOptions& options) {
  auto pool = memory::PagePool::make(options);
  EXPECT_TRUE(pool) << pool.error().text;
  return std::move(*pool);
}

class Peer final : public Handler {
public:
  explicit Peer(const PeerPools& pools = {}) { set_pools(pools); }
  /// Call it before anything is sent or received. Memory is taken as it is touched, unless it is
  /// shared.
  void set_pools(const PeerPools& pools) {
    receive_pool = make_pool({.page_size = pools.receive_page_size,
                              .pages = pools.receive_pages,
                              .arena = {.reserve_only = true}});
    send_pool = make_pool({.page_size = pools.send_page_size,
                           .pages = pools.send_pages,
                           .arena = {.reserve_only = !pools.shared, .shared = pools.shared}});
  }

  [[nodiscard]] ConnectionOptions options() {
    ConnectionOptions result;
    result.receive_pool = receive_pool.get();
    result.handler = this;
    result.send_queue_bytes = send_queue_bytes;
    return result;
  }

  /// A message in `extents` pieces (1 to 4, some empty); none if there is no page.
  [[nodiscard]] std::vector<memory::View> make_message(std::uint64_t number, std::uint32_t size,
                                                       std::size_t extents = 1) {
    std::vector<memory::View> views;
    const memory::Loan loan = send_pool->take();
    if (!loan) return views;
    fill({loan.data(), size}, number);
    std::uint32_t at = 0;
    for (std::size_t i = 0; i < extents; ++i) {
      const std::uint32_t part =
          i + 1 == extents ? size - at : (size - at) / static_cast<std::uint32_t>(2 + i);
      views.push_back(loan.freeze(at, part));
      at += part;
    }
    return views;
  }

  /// Sends one message. Outcome: backpressure also if there is no page.
  SendOutcome send(Transport& transport, ConnectionId connection, std::uint64_t number,
                   std::uint32_t size) {
    const auto views = make_message(number, size);
    return views.empty() ? SendOutcome::backpressure : transport.send(connection, views);
  }

  void on_event(Transport& transport, Event& event) override {
    EXPECT_EQ(event.kind == EventKind::closed, event.reason != CloseReason::local);
    switch (event.kind) {
    case EventKind::accepted:
    case EventKind::connected:
      opened.push_back(event.connection);
      known.insert(event.connection);
      break;
    case EventKind::writable: writable.push_back(event.connection); break;
    case EventKind::closed: closed.emplace_back(event.connection, event.reason); break;
    case EventKind::message: check(transport, event); break;
    }
    if (react) react(transport, event);
  }

  static void check_content(std::span<const std::byte> got, std::uint64_t number,
                            std::size_t from) {
    while (!got.empty()) {
      const auto expected = contents(number, from);
      const std::size_t size = std::min(expected.size(), got.size());
      if (std::memcmp(got.data(), expected.data(), size) != 0) {
        const auto at = std::ranges::mismatch(got, expected).in1 - got.begin();
        ADD_FAILURE() << "message " << number << " is wrong at byte "
                      << from + static_cast<std::size_t>(at);
        return;
      }
      got = got.subspan(size);
      from += size;
    }
  }

  void check(const Transport& transport, const Event& event) {
    EXPECT_TRUE(known.contains(event.connection)) << "a message before the connection";
    ++messages;
    const std::size_t size = std::size_t{event.message.size} + event.rest.size;
    bytes += size;
    std::uint64_t& number = next[event.connection];
    if (event.message.size > 0) {
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(event.message.data()) % 8, 0U);
      const memory::PageHome* const home = event.message.page.get()->home;
      EXPECT_TRUE(home == receive_pool.get() || transport.shares_memory() || any_home);
    } else {
      EXPECT_EQ(event.rest.size, 0U);
    }
    check_content(event.message.bytes(), number, 0);
    check_content(event.rest.bytes(), number, event.message.size);
    if (sizes) {
      EXPECT_EQ(size, sizes(number));
    }
    ++number;
    if (keep) {
      kept.push_back(event.message);
      if (event.rest.size > 0) kept.push_back(event.rest);
    }
  }

  [[nodiscard]] bool pages_are_home() const {
    return receive_pool->available() == receive_pool->pages() &&
           send_pool->available() == send_pool->pages();
  }
  [[nodiscard]] std::size_t died() const {
    return static_cast<std::size_t>(std::ranges::count_if(
        closed, [](const auto& end) { return end.second == CloseReason::peer_died; }));
  }

  std::uint64_t send_queue_bytes = 64U << 10;
  std::unique_ptr<memory::PagePool> receive_pool;
  std::unique_ptr<memory::PagePool> send_pool;
  std::vector<ConnectionId> opened;
  std::set<ConnectionId> known; ///< the connections of `opened`
  std::vector<ConnectionId> writable;
  std::vector<std::pair<ConnectionId, CloseReason>> closed;
  std::map<ConnectionId, std::uint64_t> next; ///< number of the message that is expected next
  std::uint64_t messages = 0;
  std::uint64_t bytes = 0;
  bool keep = false;
  bool any_home = false; ///< messages may lie in pages of any pool: not all peers are identified
  std::deque<memory::View> kept;
  std::function<std::size_t(std::uint64_t)> sizes; ///< expected size of a message, by its number
  std::function<void(Transport&, Event&)> react;
};

} // namespace fanin::net::conformance
