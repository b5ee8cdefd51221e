#include "fanin/net/tcp/stream_receiver.hpp"

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "fanin/base/random.hpp"
#include "fanin/net/tcp/send_queue.hpp"

namespace fanin::net::tcp {
namespace {

using Bytes = std::vector<std::byte>;
using Step = StreamReceiver::Step;

constexpr std::uint32_t page_size = 16384;

std::unique_ptr<memory::PagePool> make_pool(std::uint32_t pages) {
  return *memory::PagePool::make({.page_size = page_size, .pages = pages});
}

Bytes preface(std::uint8_t version = protocol_version) {
  Bytes bytes(preface_size);
  encode_preface(std::span<std::byte, preface_size>(bytes.data(), preface_size),
                 {.version = version, .max_message = 1234});
  return bytes;
}

void append_header(Bytes& to, std::uint32_t length) {
  while (to.size() % alignment != 0) to.push_back(std::byte{0});
  to.resize(to.size() + header_size);
  encode_header(std::span<std::byte, header_size>(to.data() + to.size() - header_size, header_size),
                length);
}

void append_end(Bytes& to, std::uint64_t taken) {
  append_header(to, end_of_stream);
  to.resize(to.size() + taken_size);
  encode_taken(std::span<std::byte, taken_size>(to.data() + to.size() - taken_size, taken_size),
               taken);
}

void append_message(Bytes& to, const Bytes& message) {
  append_header(to, static_cast<std::uint32_t>(message.size()));
  to.insert(to.end(), message.begin(), message.end());
}

Bytes random_message(Random& random, std::uint64_t bound) {
  Bytes message(random.below(bound));
  for (std::byte& byte : message) byte = static_cast<std::byte>(random.next());
  return message;
}

// Reads from memory as from a socket that gives at most `cut` bytes at a time.
struct Feed {
  const Bytes& bytes;
  std::size_t at = 0;

  std::size_t read(StreamReceiver& receiver, std::size_t cut) {
    iovec pieces[StreamReceiver::pieces_max];
    const std::size_t count = receiver.prepare(pieces);
    std::size_t total = 0;
    for (std::size_t i = 0; i < count && total < cut && at < bytes.size(); ++i) {
      const std::size_t take = std::min({pieces[i].iov_len, cut - total, bytes.size() - at});
      std::memcpy(pieces[i].iov_base, bytes.data() + at, take);
      at += take;
      total += take;
      if (take < pieces[i].iov_len) break;
    }
    if (count > 0) receiver.received(total);
    return total;
  }
};

TEST(TcpStreamReceiver, gives_the_same_messages_however_the_stream_is_cut) {
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Random random(seed);
    Bytes stream = preface();
    std::vector<Bytes> messages;
    for (int i = 0; i < 200; ++i) {
      messages.push_back(random_message(random, random.chance(1, 4) ? page_size / 2 + 1 : 700));
      append_message(stream, messages.back());
    }
    append_end(stream, seed);
    const auto pool = make_pool(8);
    PageFiller filler(*pool);
    StreamReceiver receiver(filler, page_size / 2);
    Feed feed{stream};
    std::vector<memory::View> held;
    std::size_t received = 0;
    const std::uint64_t cut_max = 1 + random.below(seed % 3 == 0 ? 20 : 30'000);
    bool ended = false;
    while (!ended) {
      memory::View view;
      switch (receiver.next(view)) {
      case Step::opened: EXPECT_EQ(receiver.peer().max_message, 1234U); break;
      case Step::message: {
        ASSERT_LT(received, messages.size());
        const Bytes& expected = messages[received++];
        ASSERT_EQ(view.size, expected.size());
        if (view.size > 0) {
          EXPECT_EQ(view.offset % alignment, 0U);
          ASSERT_EQ(std::memcmp(view.data(), expected.data(), view.size), 0)
              << "message " << received;
        }
        held.push_back(std::move(view));
        if (held.size() > 5)
          held.erase(held.begin() + static_cast<std::ptrdiff_t>(random.below(6)));
        break;
      }
      case Step::need_bytes:
        if (feed.read(receiver, 1 + random.below(cut_max)) == 0) held.clear();
        ASSERT_LT(feed.at, stream.size() + 1);
        break;
      case Step::starved: held.clear(); break;
      case Step::ended: ended = true; break;
      case Step::failed: FAIL() << static_cast<int>(receiver.reason());
      }
    }
    EXPECT_EQ(received, messages.size());
    EXPECT_EQ(feed.at, stream.size());
    held.clear();
    EXPECT_EQ(pool->available(), pool->pages());
  }
}

// Otherwise the pages of a pool could all wait for each other.
TEST(TcpStreamReceiver, owns_no_page_while_it_starves) {
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Random random(seed);
    Bytes stream = preface();
    std::vector<Bytes> messages;
    for (int i = 0; i < 200; ++i) {
      messages.push_back(random_message(random, random.chance(1, 8) ? page_size / 2 + 1 : 3000));
      append_message(stream, messages.back());
    }
    const auto pool = make_pool(static_cast<std::uint32_t>(1 + random.below(3)));
    PageFiller filler(*pool);
    StreamReceiver receiver(filler, page_size / 2);
    Feed feed{stream};
    std::vector<memory::View> held;
    std::size_t received = 0;
    while (received < messages.size()) {
      memory::View view;
      Step step = receiver.next(view);
      if (step == Step::message) {
        ASSERT_TRUE(std::ranges::equal(view.bytes(), messages[received]));
        ++received;
        if (view.size > 0) held.push_back(std::move(view));
        continue;
      }
      if (step == Step::need_bytes && feed.read(receiver, 1 + random.below(9000)) == 0)
        step = Step::starved;
      if (step != Step::starved) continue;
      if (!receiver.can_go_on()) held.clear();
      if (held.empty()) {
        (void)receiver.give_up_region();
        ASSERT_EQ(pool->available(), pool->pages());
      }
    }
  }
}

TEST(TcpStreamReceiver, gives_up_the_region_of_a_message_that_has_hardly_begun_and_goes_on_later) {
  const auto pool = make_pool(1);
  PageFiller filler(*pool);
  StreamReceiver receiver(filler, page_size / 2);
  Bytes message(page_size / 2);
  for (std::size_t i = 0; i < message.size(); ++i) message[i] = static_cast<std::byte>(i * 7);
  Bytes stream = preface();
  append_message(stream, message);
  Feed feed{stream};
  memory::View view;
  EXPECT_EQ(receiver.next(view), Step::need_bytes);
  EXPECT_EQ(feed.read(receiver, preface_size), preface_size);
  EXPECT_EQ(receiver.next(view), Step::opened);
  EXPECT_EQ(receiver.next(view), Step::need_bytes);
  EXPECT_EQ(feed.read(receiver, header_size), header_size);
  for (const std::size_t part : {0U, 1U, 700U}) {
    EXPECT_EQ(receiver.next(view), Step::need_bytes);
    EXPECT_EQ(feed.read(receiver, part), part);
    EXPECT_EQ(pool->available(), 0U);
    EXPECT_TRUE(receiver.give_up_region());
    EXPECT_EQ(pool->available(), 1U);
  }
  EXPECT_EQ(receiver.next(view), Step::need_bytes);
  EXPECT_EQ(feed.read(receiver, 4000), 4000U);
  EXPECT_FALSE(receiver.give_up_region()); // this much it has paid for
  EXPECT_FALSE(receiver.give_up_region(true)); // and it went on since the last check
  EXPECT_EQ(receiver.next(view), Step::need_bytes);
  EXPECT_EQ(feed.read(receiver, page_size / 16), page_size / 16);
  EXPECT_TRUE(receiver.give_up_region(true)); // hardly
  EXPECT_EQ(pool->available(), 1U);
  EXPECT_EQ(receiver.next(view), Step::need_bytes);
  EXPECT_EQ(feed.read(receiver, page_size / 16 + 1), page_size / 16 + 1);
  EXPECT_FALSE(receiver.give_up_region(true));
  while (receiver.next(view) == Step::need_bytes) (void)feed.read(receiver, SIZE_MAX);
  EXPECT_TRUE(std::ranges::equal(view.bytes(), message));
}

// One page is enough for any number of connections that are within small messages.
TEST(TcpStreamReceiver, unfinished_messages_share_a_page) {
  const auto pool = make_pool(1);
  PageFiller filler(*pool);
  Bytes stream = preface();
  append_message(stream, Bytes(100));
  std::vector<std::unique_ptr<StreamReceiver>> receivers;
  for (int i = 0; i < 50; ++i) {
    receivers.push_back(std::make_unique<StreamReceiver>(filler, page_size / 2));
    const Bytes beginning(stream.begin(), stream.end() - 1);
    Feed feed{beginning};
    memory::View view;
    EXPECT_EQ(receivers.back()->next(view), Step::need_bytes);
    while (feed.read(*receivers.back(), 1 << 20) > 0) {
      Step step = receivers.back()->next(view);
      if (step == Step::opened) step = receivers.back()->next(view);
      ASSERT_EQ(step, Step::need_bytes);
    }
  }
  receivers.clear();
  EXPECT_EQ(pool->available(), 1U);
}

TEST(TcpStreamReceiver, waits_for_a_page_and_goes_on) {
  const auto pool = make_pool(1);
  PageFiller filler(*pool);
  memory::Loan taken = pool->take();
  StreamReceiver receiver(filler, page_size / 2);
  Bytes stream = preface();
  append_message(stream, Bytes(5000));
  Feed feed{stream};
  memory::View view;
  EXPECT_EQ(receiver.next(view), Step::need_bytes);
  EXPECT_GT(feed.read(receiver, 1 << 20), 0U);
  EXPECT_EQ(receiver.next(view), Step::opened);
  EXPECT_EQ(receiver.next(view), Step::need_bytes);
  EXPECT_EQ(feed.read(receiver, 1 << 20), header_size);
  EXPECT_EQ(receiver.next(view), Step::need_bytes);
  EXPECT_EQ(feed.read(receiver, 1 << 20), 0U);
  EXPECT_FALSE(receiver.can_go_on());
  taken.reset();
  EXPECT_TRUE(receiver.can_go_on());
  EXPECT_EQ(receiver.next(view), Step::need_bytes);
  EXPECT_EQ(feed.read(receiver, 1 << 20), 5000U);
  EXPECT_EQ(receiver.next(view), Step::message);
  EXPECT_EQ(view.size, 5000U);
}

TEST(TcpStreamReceiver, an_unidentified_peer_pins_no_more_than_a_small_message) {
  const auto pool = make_pool(2);
  PageFiller filler(*pool);
  StreamReceiver receiver(filler, page_size / 2);
  receiver.mark_unidentified(filler);
  Bytes stream = preface();
  append_message(stream, Bytes(unidentified_message_max));
  append_message(stream, Bytes(page_size / 2));
  Feed feed{stream};
  memory::View view;
  Step step = Step::need_bytes;
  while (step != Step::message) {
    if (step == Step::need_bytes) {
      ASSERT_GT(feed.read(receiver, 1 << 20), 0U);
    }
    step = receiver.next(view);
  }
  EXPECT_EQ(view.size, unidentified_message_max);
  view = {};
  EXPECT_EQ(receiver.next(view), Step::starved);
  EXPECT_FALSE(receiver.can_go_on());
  EXPECT_EQ(pool->available(), 2U);
  receiver.mark_identified(filler);
  EXPECT_TRUE(receiver.can_go_on());
  EXPECT_EQ(receiver.next(view), Step::need_bytes);
  EXPECT_GT(feed.read(receiver, 1 << 20), 0U);
  EXPECT_EQ(receiver.next(view), Step::message);
  EXPECT_EQ(view.size, page_size / 2);
}

CloseReason reason_of(const Bytes& stream, std::uint32_t max_message = page_size / 2) {
  const auto pool = make_pool(2);
  PageFiller filler(*pool);
  StreamReceiver receiver(filler, max_message);
  Feed feed{stream};
  while (true) {
    memory::View view;
    const Step step = receiver.next(view);
    if (step == Step::failed) return receiver.reason();
    if (step == Step::ended) return CloseReason::peer_closed;
    if (step == Step::need_bytes && feed.read(receiver, 1 << 20) == 0)
      return CloseReason::peer_died;
  }
}

TEST(TcpStreamReceiver, tells_what_is_wrong_with_a_stream) {
  EXPECT_EQ(reason_of({}), CloseReason::peer_died);
  EXPECT_EQ(reason_of(Bytes(1, std::byte{'F'})), CloseReason::peer_died);
  EXPECT_EQ(reason_of(Bytes(1, std::byte{'G'})), CloseReason::protocol_violation);
  EXPECT_EQ(reason_of(Bytes(100)), CloseReason::protocol_violation);
  for (const std::uint8_t other : {std::uint8_t{0}, std::uint8_t{protocol_version + 1}})
    EXPECT_EQ(reason_of(preface(other)), CloseReason::version_mismatch);
  Bytes swapped = preface();
  swapped[12] = std::byte{2};
  EXPECT_EQ(reason_of(swapped), CloseReason::version_mismatch);
  Bytes stream = preface();
  append_message(stream, Bytes(100));
  EXPECT_EQ(reason_of(stream), CloseReason::peer_died);
  Bytes ended = stream;
  append_end(ended, 5);
  EXPECT_EQ(reason_of(ended), CloseReason::peer_closed);
  EXPECT_EQ(reason_of(ended, 99), CloseReason::message_too_large);
  append_header(stream, page_size / 2 + 1);
  EXPECT_EQ(reason_of(stream), CloseReason::message_too_large);
  stream.back() ^= std::byte{1};
  EXPECT_EQ(reason_of(stream), CloseReason::protocol_violation);
}

// After any beginning, whatever was read ahead of it.
TEST(TcpStreamReceiver, finds_the_end_behind_messages_that_are_not_wanted) {
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Random random(seed);
    Bytes stream = preface();
    for (int i = 0; i < 30; ++i)
      append_message(stream, random_message(random, random.chance(1, 4) ? page_size / 2 + 1 : 700));
    const bool good = random.chance(3, 4);
    good ? append_end(stream, seed) : append_header(stream, page_size);
    const auto pool = make_pool(2);
    PageFiller filler(*pool);
    StreamReceiver receiver(filler, page_size / 2);
    Feed feed{stream};
    bool opened = false; // a connection that is not is closed without this
    for (std::uint64_t steps = 1 + random.below(40); steps > 0 || !opened;
         steps -= opened ? 1 : 0) {
      memory::View view;
      const Step step = receiver.next(view);
      if (step == Step::ended || step == Step::failed) break;
      opened = opened || step == Step::opened;
      if (step == Step::need_bytes) (void)feed.read(receiver, 1 + random.below(3000));
    }
    receiver.take_no_more();
    EXPECT_EQ(pool->available(), 2U);
    Step step = receiver.discard({});
    while (step == Step::need_bytes) {
      ASSERT_LT(feed.at, stream.size());
      const std::size_t size =
          std::min<std::size_t>(1 + random.below(5000), stream.size() - feed.at);
      step = receiver.discard(std::span(stream).subspan(feed.at, size));
      feed.at += size;
    }
    EXPECT_EQ(step, good ? Step::ended : Step::failed);
    EXPECT_EQ(receiver.peer_has_taken(), good ? seed : 0U);
  }
}

TEST(TcpFrame, golden_bytes) {
  Bytes stream = preface();
  append_message(stream, Bytes(3, std::byte{0xaa}));
  append_message(stream, Bytes(1, std::byte{0xbb}));
  append_end(stream, 0x0102030405060708U);
  std::string text;
  for (const std::byte byte : stream) {
    constexpr std::string_view digits = "0123456789abcdef";
    text += digits[std::to_integer<std::size_t>(byte) >> 4];
    text += digits[std::to_integer<std::size_t>(byte) & 15];
  }
  EXPECT_EQ(text, "46414e494e000001d20400000100000000000000000000000000000000000000"
                  "030000004d494e46aaaaaa0000000000"
                  "010000004f494e46bb00000000000000"
                  "ffffffffb1b6b1b90807060504030201");
}

// What a queue writes, in whatever pieces the kernel takes it, is what a receiver reads.
TEST(TcpSendQueue, writes_the_stream_in_any_pieces) {
  const auto pool = make_pool(64);
  SendQueue::Store store;
  SendQueue queue(store);
  Random random(5);
  Bytes expected;
  std::vector<std::uint32_t> sizes;
  for (int i = 0; i < 40; ++i) {
    memory::Loan loan = pool->take();
    const auto size = static_cast<std::uint32_t>(random.below(3000));
    Bytes message(size);
    for (std::byte& byte : message) byte = static_cast<std::byte>(random.next());
    if (size > 0) std::memcpy(loan.data(), message.data(), size);
    append_message(expected, message);
    const std::uint32_t half = size / 2;
    const memory::View views[] = {loan.freeze(0, half), loan.freeze(half, 0),
                                  loan.freeze(half, size - half)};
    queue.push(views, size);
  }
  queue.push_end_of_stream(7);
  append_end(expected, 7);
  EXPECT_EQ(pool->available(), 24U);
  Bytes written;
  std::size_t completed = 0;
  while (!queue.empty()) {
    std::array<iovec, 16> pieces;
    bool all = false;
    const std::size_t count = queue.gather(pieces, all);
    std::size_t total = 0;
    std::size_t quota = random.below(5000);
    for (std::size_t i = 0; i < count; ++i) {
      const std::size_t take = std::min(pieces[i].iov_len, quota);
      const auto* const from = static_cast<const std::byte*>(pieces[i].iov_base);
      written.insert(written.end(), from, from + take);
      quota -= take;
      total += take;
    }
    completed += queue.consume(total);
  }
  EXPECT_EQ(completed, 41U);
  EXPECT_EQ(written, expected);
  EXPECT_EQ(queue.charged_bytes(), 0U);
  EXPECT_EQ(pool->available(), pool->pages());
}

} // namespace
} // namespace fanin::net::tcp
