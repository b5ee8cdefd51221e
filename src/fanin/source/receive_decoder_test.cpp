#include "fanin/source/receive_decoder.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "fanin/base/random.hpp"
#include "fanin/source/testing/sender.hpp"

namespace fanin::source {
namespace {

using State = ReceiveDecoder::State;
using testing::Bytes;
using testing::bytes_of;
using testing::payload_of;
using testing::QueueFixture;
using testing::SenderBytes;

TEST(ReceiveDecoder, the_format_is_these_bytes) {
  SenderBytes sender(0x01020304);
  sender.preface().fragment(0x1122334455667788, Bytes{std::byte{0xab}}, false);
  constexpr std::array<unsigned char, 41> golden{
      'F',  'A',  'N',  'I',  'N',  'R',  'C',  'V',  1, 0, 0, 0, 4, 3, // preface
      2,    1,    0xa6, 0xf4, 0,    0,    4,    3,    2, 1,                // mark, kind, source
      0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11, 1, 0, 0, 0, 0, 0, // event, size, crc
      0,    0,    0xab};
  ASSERT_EQ(sender.bytes().size(), golden.size());
  EXPECT_EQ(std::memcmp(sender.bytes().data(), golden.data(), golden.size()), 0);
}

TEST(ReceiveDecoder, bytes_may_come_in_any_pieces) {
  SenderBytes sender(5);
  for (EventNumber event = 0; event < 20; ++event) {
    sender.fragment(event, bytes_of(event * 331, event), event % 2 == 0);
  }
  for (std::uint64_t seed = 0; seed < 30; ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    Random random(seed);
    QueueFixture fixture({.source = 5, .window = 64}, {.page_size = 4096, .pages = 32});
    ReceiveDecoder decoder(5, true);
    for (auto rest = std::span<const std::byte>(sender.bytes()); !rest.empty();) {
      const std::size_t limit = seed == 0 ? 1 : 1 + random.below(3000);
      std::size_t size = std::min(rest.size(), limit);
      if (const auto direct = decoder.direct(fixture.queue);
          !direct.empty() && random.chance(1, 2)) {
        size = std::min(size, direct.size());
        std::memcpy(direct.data(), rest.data(), size);
        decoder.received(size, fixture.queue);
      } else {
        const auto taken = decoder.take(rest.first(size), fixture.queue);
        ASSERT_EQ(taken.state, State::hungry);
        ASSERT_EQ(taken.bytes, size);
      }
      rest = rest.subspan(size);
    }
    ASSERT_EQ(fixture.queue.numbers().written(), 20U);
    for (EventNumber event = 0; event < 20; ++event) {
      ASSERT_EQ(payload_of(fixture.queue, event), bytes_of(event * 331, event));
    }
    EXPECT_EQ(decoder.bad_checksums(), 0U);
    EXPECT_EQ(decoder.disconnect(fixture.queue), ReceiveFault::none);
  }
}

// The fault that `bytes` end with.
ReceiveFault fault_of(const Bytes& bytes) {
  QueueFixture fixture({.source = 5, .window = 64});
  ReceiveDecoder decoder(5, true);
  const auto taken = decoder.take(bytes, fixture.queue);
  EXPECT_EQ(taken.state == State::fault, decoder.fault() != ReceiveFault::none);
  return decoder.disconnect(fixture.queue);
}

TEST(ReceiveDecoder, hostile_bytes_are_a_named_fault) {
  const auto header_with = [](auto change) {
    SenderBytes sender(5);
    ReceiveHeader header = sender.plain(1);
    change(header);
    return fault_of(sender.header(header).bytes());
  };
  EXPECT_EQ(header_with([](ReceiveHeader& h) { h.mark = 0; }), ReceiveFault::bad_mark);
  EXPECT_EQ(header_with([](ReceiveHeader& h) { h.kind = ReceiveKind{3}; }), ReceiveFault::bad_kind);
  EXPECT_EQ(header_with([](ReceiveHeader& h) { h.flags = 0x80; }), ReceiveFault::bad_kind);
  EXPECT_EQ(header_with([](ReceiveHeader& h) { h.source = 6; }), ReceiveFault::other_source);
  EXPECT_EQ(header_with([](ReceiveHeader& h) { h.size = 1U << 27; }), ReceiveFault::bad_size);
  EXPECT_EQ(header_with([](ReceiveHeader& h) { h.size = ~0U; }), ReceiveFault::bad_size);
  EXPECT_EQ(header_with([](ReceiveHeader& h) {
              h.kind = ReceiveKind::end;
              h.size = 1;
            }),
            ReceiveFault::bad_size);
}

// A device gives -1 where it has no number.
TEST(ReceiveDecoder, a_number_that_cannot_be_costs_only_its_fragment) {
  for (const bool reliable : {false, true}) {
    for (const bool begun : {false, true}) {
      for (const std::int64_t offset : {0, 100, -3}) {
        for (const EventNumber wrong : {~EventNumber{0}, event_number_end, event_number_end + 2}) {
          QueueFixture fixture({.source = 5, .window = 64, .offset = offset});
          ReceiveDecoder decoder(5, true);
          decoder.connect(reliable);
          SenderBytes sender(5);
          if (reliable) sender.reliable();
          if (begun) sender.fragment(3, bytes_of(10, 3)).fragment(4, bytes_of(10, 4));
          sender.fragment(wrong, bytes_of(10, 9)).skip_to(wrong);
          sender.fragment(5, bytes_of(10, 5)).fragment(6, bytes_of(10, 6));
          ASSERT_EQ(decoder.take(sender.bytes(), fixture.queue).state, State::hungry);
          fixture.end_held();
          EXPECT_EQ(fixture.queue.numbers().written(), begun ? 4U : 2U);
          EXPECT_EQ(payload_of(fixture.queue, 5 + static_cast<EventNumber>(offset)),
                    bytes_of(10, 5));
          EXPECT_EQ(fixture.queue.numbers().last_decided(), 6U);
          EXPECT_EQ(fixture.queue.numbers().dropped(wire::DropReason::number_jump), 2U);
          EXPECT_EQ(decoder.disconnect(fixture.queue), ReceiveFault::none);
        }
      }
    }
  }
}

TEST(ReceiveDecoder, of_a_narrow_counter_all_higher_bits_are_ignored) {
  QueueFixture fixture({.source = 5, .window = 64, .counter_bits = 24});
  fixture.queue.start(0);
  ReceiveDecoder decoder(5, true);
  SenderBytes sender(5);
  for (EventNumber event = 0; event < 10; ++event) {
    sender.fragment(event | EventNumber{0xfe} << 56, bytes_of(10, event));
  }
  ASSERT_EQ(decoder.take(sender.bytes(), fixture.queue).state, State::hungry);
  EXPECT_EQ(fixture.queue.numbers().written(), 10U);
  EXPECT_EQ(payload_of(fixture.queue, 9), bytes_of(10, 9));
}

TEST(ReceiveDecoder, an_end_within_a_message_is_a_fault_and_leaves_no_half_fragment) {
  SenderBytes sender(5);
  sender.fragment(0, bytes_of(100, 0)).fragment(1, bytes_of(100, 1));
  const std::size_t first_end = 24 + 100;
  for (std::size_t size = 0; size < sender.bytes().size(); ++size) {
    QueueFixture fixture({.source = 5, .window = 64});
    fixture.queue.start(0);
    ReceiveDecoder decoder(5, true);
    const auto taken =
        decoder.take(std::span<const std::byte>(sender.bytes()).first(size), fixture.queue);
    ASSERT_EQ(taken.state, State::hungry);
    const bool between = size == 0 || size == first_end;
    ASSERT_EQ(decoder.disconnect(fixture.queue),
              between ? ReceiveFault::none : ReceiveFault::cut_short);
    ASSERT_FALSE(fixture.queue.open());
    ASSERT_EQ(fixture.queue.numbers().written(), size >= first_end ? 1U : 0U);
    // Another sender may send it again.
    SenderBytes again(5);
    again.fragment(1, bytes_of(100, 1));
    ASSERT_EQ(decoder.take(again.bytes(), fixture.queue).state, State::hungry);
    fixture.end_held();
    ASSERT_EQ(payload_of(fixture.queue, 1), bytes_of(100, 1));
  }
}

// The sender keeps what it has sent.
class AskingAgain : public ::testing::Test {
protected:
  AskingAgain() {
    fixture_.queue.start(0);
    decoder_.connect(true);
  }
  // Connects once more and sends `bytes`. The fault that ends the connection, if one does.
  ReceiveFault send(const Bytes& bytes) {
    const State state = decoder_.take(bytes, fixture_.queue).state;
    const ReceiveFault fault = decoder_.fault();
    EXPECT_EQ(state == State::fault, fault != ReceiveFault::none);
    if (state == State::fault) (void)decoder_.disconnect(fixture_.queue);
    return fault;
  }
  static SenderBytes fragments(EventNumber first, EventNumber end) {
    SenderBytes sender(5);
    sender.reliable();
    for (; first < end; ++first) sender.fragment(first, bytes_of(100, first));
    return sender;
  }

  QueueFixture fixture_{{.source = 5, .window = 64, .fragment_max = 2000},
                        {.page_size = 4096, .pages = 32}};
  ReceiveDecoder decoder_{5, true};
};
constexpr std::size_t header_size = sizeof(CheckedBytes<ReceiveHeader>);

TEST_F(AskingAgain, a_damaged_fragment_comes_once_more) {
  SenderBytes sender = fragments(0, 3);
  sender.bytes()[header_size + 100 + header_size + 50] ^= std::byte{1};
  EXPECT_EQ(send(sender.bytes()), ReceiveFault::damaged);
  EXPECT_EQ(fixture_.queue.numbers().last_decided(), 0U);
  EXPECT_EQ(send(fragments(1, 3).bytes()), ReceiveFault::none);
  for (EventNumber event = 0; event < 3; ++event) {
    EXPECT_EQ(payload_of(fixture_.queue, event), bytes_of(100, event));
    EXPECT_EQ(fixture_.queue.entry(event).flags(), 0U);
  }
  EXPECT_EQ(decoder_.bad_checksums(), 0U);
}

TEST_F(AskingAgain, a_fragment_that_comes_damaged_again_and_again_counts_as_it_is) {
  SenderBytes sender = fragments(0, 4);
  sender.bytes()[header_size + 50] ^= std::byte{1};
  for (int time = 0; time < 3; ++time) {
    sender.bytes()[header_size + 60] ^= std::byte{1};
    EXPECT_EQ(send(sender.bytes()), ReceiveFault::damaged);
  }
  EXPECT_EQ(send(sender.bytes()), ReceiveFault::none);
  EXPECT_EQ(fixture_.queue.entry(0).flags(), wire::fragment_bad_checksum);
  EXPECT_EQ(fixture_.queue.next_event(), 4U);
  EXPECT_EQ(decoder_.bad_checksums(), 1U);
}

// Its sender sums wrongly, or its memory is bad.
TEST_F(AskingAgain, where_all_is_damaged_it_is_asked_sixteen_times_until_some_are_right) {
  const auto damaged = [](EventNumber event) {
    SenderBytes sender = fragments(event, event + 1);
    sender.bytes()[header_size + 50] ^= std::byte{1};
    return sender.bytes();
  };
  int asked = 0;
  for (EventNumber event = 0; event < 20; ++event) {
    while (send(damaged(event)) == ReceiveFault::damaged) ++asked;
  }
  EXPECT_EQ(asked, 16);
  EXPECT_EQ(decoder_.bad_checksums(), 20U);
  for (EventNumber event = 20; event < 220; ++event) {
    EXPECT_EQ(send(fragments(event, event + 1).bytes()), ReceiveFault::none);
    fixture_.queue.release_until(event);
  }
  for (EventNumber event = 220; event < 224; ++event) {
    while (send(damaged(event)) == ReceiveFault::damaged) ++asked;
  }
  EXPECT_EQ(asked, 18);
}

// Its header has a checksum: the size is right.
TEST_F(AskingAgain, one_that_is_too_large_is_dropped_at_once) {
  SenderBytes sender(5);
  sender.reliable().fragment(0, bytes_of(3000, 0)).fragment(1, bytes_of(10, 1));
  EXPECT_EQ(send(sender.bytes()), ReceiveFault::none);
  EXPECT_EQ(fixture_.queue.numbers().dropped(wire::DropReason::oversize), 1U);
  EXPECT_EQ(payload_of(fixture_.queue, 1), bytes_of(10, 1));
}

TEST_F(AskingAgain, a_damaged_bit_of_a_header_costs_nothing) {
  for (std::size_t bit = 0; bit < 8 * header_size; ++bit) {
    const EventNumber first = fixture_.queue.next_event();
    Bytes bytes = fragments(first, first + 3).bytes();
    bytes[header_size + 100 + bit / 8] ^= std::byte{1} << (bit % 8);
    ASSERT_EQ(send(bytes), bit < 16 ? ReceiveFault::bad_mark : ReceiveFault::damaged) << bit;
    ASSERT_EQ(fixture_.queue.numbers().last_decided(), first) << bit;
    ASSERT_EQ(send(fragments(first, first + 3).bytes()), ReceiveFault::none) << bit;
    for (EventNumber event = first; event < first + 3; ++event) {
      ASSERT_EQ(payload_of(fixture_.queue, event), bytes_of(100, event)) << bit;
    }
    fixture_.queue.release_until(first + 3);
  }
}

TEST(ReceiveDecoder, a_wrong_checksum_flags_the_fragment) {
  for (const bool queue_sums : {true, false}) {
    for (const bool check : {true, false}) {
      SenderBytes sender(5);
      sender.fragment(0, bytes_of(100, 0)).fragment(1, bytes_of(100, 1));
      sender.bytes()[24 + 50] ^= std::byte{1};
      QueueFixture fixture({.source = 5, .window = 64, .checksum = queue_sums});
      ReceiveDecoder decoder(5, check);
      ASSERT_EQ(decoder.take(sender.bytes(), fixture.queue).state, State::hungry);
      EXPECT_EQ(fixture.queue.entry(0).flags(), check ? wire::fragment_bad_checksum : 0U);
      EXPECT_EQ(fixture.queue.entry(1).flags(), 0U);
      EXPECT_EQ(decoder.bad_checksums(), check ? 1U : 0U);
    }
  }
}

TEST(ReceiveDecoder, flags_of_the_front_end_are_kept) {
  SenderBytes sender(5);
  ReceiveHeader header = sender.plain(3);
  header.flags = receive_truncated | receive_bad_number;
  sender.header(header);
  QueueFixture fixture({.source = 5, .window = 64});
  ReceiveDecoder decoder(5, true);
  ASSERT_EQ(decoder.take(sender.bytes(), fixture.queue).state, State::hungry);
  fixture.end_held();
  EXPECT_EQ(fixture.queue.entry(3).flags(), wire::fragment_truncated | wire::fragment_bad_number);
  EXPECT_FALSE(fixture.queue.entry(3).absent());
}

TEST(ReceiveDecoder, rejected_fragments_are_counted_and_the_rest_goes_on) {
  SenderBytes sender(5);
  sender.fragment(10, bytes_of(50, 0))
      .fragment(10, bytes_of(50, 1))
      .fragment(9, bytes_of(50, 2))
      .fragment(1000, bytes_of(50, 3))
      .fragment(11, bytes_of(5000, 4)) // over the maximum
      .fragment(12, bytes_of(60, 5));
  QueueFixture fixture({.source = 5, .window = 64, .fragment_max = 4096});
  fixture.queue.start(10);
  ReceiveDecoder decoder(5, true);
  ASSERT_EQ(decoder.take(sender.bytes(), fixture.queue).state, State::hungry);
  EXPECT_EQ(fixture.queue.numbers().written(), 2U);
  EXPECT_TRUE(fixture.queue.entry(11).absent());
  EXPECT_EQ(payload_of(fixture.queue, 12), bytes_of(60, 5));
  EXPECT_EQ(fixture.queue.numbers().dropped(wire::DropReason::number_repeat), 1U);
  EXPECT_EQ(fixture.queue.numbers().dropped(wire::DropReason::number_back), 1U);
  EXPECT_EQ(fixture.queue.numbers().dropped(wire::DropReason::number_jump), 1U);
  EXPECT_EQ(fixture.queue.numbers().dropped(wire::DropReason::oversize), 1U);
}

TEST(ReceiveDecoder, a_full_queue_stops_the_bytes_and_loses_none) {
  SenderBytes sender(5);
  for (EventNumber event = 0; event < 40; ++event) sender.fragment(event, bytes_of(20, event));
  sender.end();
  QueueFixture fixture({.source = 5, .window = 8});
  ReceiveDecoder decoder(5, true);
  auto rest = std::span<const std::byte>(sender.bytes());
  State state = State::full;
  for (int turns = 0; turns < 10 && state == State::full; ++turns) {
    const auto taken = decoder.take(rest, fixture.queue);
    rest = rest.subspan(taken.bytes);
    state = taken.state;
    fixture.queue.release_until(fixture.queue.next_event());
  }
  EXPECT_EQ(state, State::end);
  EXPECT_EQ(fixture.queue.numbers().written(), 40U);
}

TEST(ReceiveDecoder, a_skip_is_confirmed_by_what_follows) {
  SenderBytes sender(5);
  sender.fragment(0, {}).skip_to(10).fragment(10, {}).skip_to(1ULL << 60).fragment(11, {});
  QueueFixture fixture({.source = 5, .window = 64});
  ReceiveDecoder decoder(5, true);
  ASSERT_EQ(decoder.take(sender.bytes(), fixture.queue).state, State::hungry);
  EXPECT_EQ(fixture.queue.next_event(), 12U);
  EXPECT_TRUE(fixture.queue.entry(9).absent());
  EXPECT_EQ(fixture.queue.numbers().dropped(wire::DropReason::number_jump), 1U);
}

TEST(ReceiveDecoder, a_pause_lasts_until_the_next_message_and_beyond_a_connection) {
  SenderBytes sender(5);
  QueueFixture fixture({.source = 5, .window = 64});
  ReceiveDecoder decoder(5, true);
  const auto take = [&](SenderBytes& bytes) {
    EXPECT_EQ(decoder.take(bytes.bytes(), fixture.queue).state, State::hungry);
    bytes.bytes().clear();
  };
  take(sender.fragment(0, {}));
  EXPECT_FALSE(decoder.paused());
  take(sender.pause());
  EXPECT_TRUE(decoder.paused());
  EXPECT_EQ(decoder.disconnect(fixture.queue), ReceiveFault::none);
  EXPECT_TRUE(decoder.paused());
  take(sender.fragment(1, {}));
  EXPECT_FALSE(decoder.paused());
  take(sender.pause().skip_to(4));
  EXPECT_FALSE(decoder.paused());
  take(sender.pause());
  decoder.begin_run();
  EXPECT_FALSE(decoder.paused()) << "what was taken before may come again";
}

TEST(ReceiveDecoder, what_another_connection_sends_again_is_left_out_by_the_numbers_of_the_sender) {
  QueueFixture fixture({.source = 5, .window = 64, .offset = 1000});
  ReceiveDecoder decoder(5, true);
  for (const EventNumber end : {4U, 9U}) {
    SenderBytes sender(5);
    for (EventNumber event = 0; event < end; ++event) sender.fragment(event, {});
    ASSERT_EQ(decoder.take(sender.bytes(), fixture.queue).state, State::hungry);
    EXPECT_EQ(decoder.disconnect(fixture.queue), ReceiveFault::none);
    (void)fixture.queue.give_up_until(1008);
    decoder.leave_out_below(8);
  }
  EXPECT_EQ(fixture.queue.numbers().dropped(wire::DropReason::late), 4U)
      << "0 to 3 were taken before";
  EXPECT_EQ(fixture.queue.numbers().written(), 5U);
}

// The program goes on, and its front end counts again.
TEST(ReceiveDecoder, what_is_sent_over_another_connection_with_other_data_is_no_repeat) {
  QueueFixture fixture({.source = 5, .window = 64});
  ReceiveDecoder decoder(5, true);
  for (const std::uint64_t seed : {0U, 0U, 1U}) {
    SenderBytes sender(5);
    for (EventNumber event = 0; event < 8; ++event) {
      sender.fragment(event, testing::bytes_of(8, seed));
    }
    EXPECT_EQ(decoder.take(sender.bytes(), fixture.queue).state, State::hungry);
    EXPECT_EQ(decoder.disconnect(fixture.queue), ReceiveFault::none);
    decoder.leave_out_below(fixture.queue.next_event());
  }
  EXPECT_EQ(decoder.repeats_skipped(), 8U);
  EXPECT_EQ(fixture.queue.numbers().dropped(wire::DropReason::number_back) +
                fixture.queue.numbers().dropped(wire::DropReason::number_repeat),
            8U);
}

TEST(ReceiveDecoder, what_is_sent_again_is_counted_and_only_of_the_same_sender) {
  QueueFixture fixture({.source = 5, .window = 64});
  ReceiveDecoder decoder(5, true);
  const auto send = [&](EventNumber first, EventNumber end, std::uint64_t seed = 0) {
    SenderBytes sender(5);
    for (EventNumber event = first; event < end; ++event) {
      sender.fragment(event, testing::bytes_of(8, seed));
    }
    EXPECT_EQ(decoder.take(sender.bytes(), fixture.queue).state, State::hungry);
    EXPECT_EQ(decoder.disconnect(fixture.queue), ReceiveFault::none);
    decoder.leave_out_below(fixture.queue.next_event());
  };
  send(0, 8);
  send(4, 10);
  EXPECT_EQ(decoder.repeats_skipped(), 4U);
  EXPECT_EQ(fixture.queue.numbers().dropped(wire::DropReason::number_back), 0U);
  decoder.begin_sender();
  send(0, 5, 1); // a program that was started again counts from 0
  EXPECT_EQ(decoder.repeats_skipped(), 4U);
  EXPECT_EQ(fixture.queue.numbers().dropped(wire::DropReason::number_back), 5U);
  decoder.begin_sender();
  send(0, 5); // or sends the same data once more
  EXPECT_EQ(fixture.queue.numbers().dropped(wire::DropReason::number_back), 5U);
  EXPECT_EQ(fixture.queue.numbers().dropped(wire::DropReason::number_repeat), 5U);
  decoder.begin_at(20);
  decoder.leave_out_below(20);
  send(12, 22);
  EXPECT_EQ(decoder.repeats_skipped(), 12U);
  EXPECT_EQ(fixture.queue.numbers().written(), 12U);
}

// Its first numbers were wrong, or its counter was reset, before the run had an event of it.
TEST(ReceiveDecoder, what_is_late_after_the_numbers_fell_is_counted) {
  QueueFixture fixture({.source = 5, .window = 64});
  fixture.queue.numbers().allow_reset(CounterReset::yes);
  ReceiveDecoder decoder(5, true);
  SenderBytes before(5);
  for (const EventNumber event : {5000U, 5001U, 5002U}) before.fragment(event, {});
  ASSERT_EQ(decoder.take(before.bytes(), fixture.queue).state, State::hungry);
  EXPECT_EQ(decoder.disconnect(fixture.queue), ReceiveFault::none);
  SenderBytes after(5);
  for (EventNumber event = 0; event < 10; ++event) after.fragment(event, {});
  ASSERT_EQ(decoder.take(after.bytes(), fixture.queue).state, State::hungry);
  ASSERT_EQ(fixture.queue.next_event(), 10U);
  fixture.queue.numbers().allow_reset(CounterReset::no);
  (void)fixture.queue.give_up_until(20);
  decoder.leave_out_below(20);
  SenderBytes late(5);
  for (EventNumber event = 10; event < 21; ++event) late.fragment(event, {});
  ASSERT_EQ(decoder.take(late.bytes(), fixture.queue).state, State::hungry);
  EXPECT_EQ(fixture.queue.numbers().dropped(wire::DropReason::late), 10U);
  EXPECT_EQ(decoder.repeats_skipped(), 0U);
}

// A byte too many has moved the number of the last message.
TEST(ReceiveDecoder, a_number_that_may_be_wrong_is_not_the_last_one_that_was_taken) {
  QueueFixture fixture({.source = 5, .window = 64});
  ReceiveDecoder decoder(5, true);
  const auto send = [&](std::initializer_list<EventNumber> events) {
    SenderBytes sender(5);
    for (const EventNumber event : events) sender.fragment(event, {});
    EXPECT_EQ(decoder.take(sender.bytes(), fixture.queue).state, State::hungry);
    EXPECT_EQ(decoder.disconnect(fixture.queue), ReceiveFault::none);
    decoder.leave_out_below(fixture.queue.next_event());
  };
  send({0});
  EXPECT_EQ(fixture.queue.numbers().last_decided(), std::nullopt)
      << "the first number of all may be wrong, too";
  send({0, 1, 2});
  EXPECT_EQ(fixture.queue.numbers().last_decided(), 2U);
  EXPECT_EQ(decoder.repeats_skipped(), 1U) << "held when the connection was lost";
  send({3, 3 << 8});
  EXPECT_EQ(fixture.queue.numbers().last_decided(), 3U);
  send({4, 5, 7});
  EXPECT_EQ(fixture.queue.numbers().last_decided(), 5U);
  send({7, 8});
  EXPECT_EQ(fixture.queue.numbers().last_decided(), 8U);
  EXPECT_EQ(decoder.repeats_skipped(), 2U);
  EXPECT_EQ(fixture.queue.numbers().dropped(wire::DropReason::number_jump), 1U);
  EXPECT_EQ(fixture.queue.numbers().written(), 8U);
}

TEST(ReceiveDecoder, a_held_fragment_that_others_confirm_before_it_is_sent_again_is_left_out) {
  QueueFixture fixture({.source = 5, .window = 64});
  fixture.queue.start(0);
  ReceiveDecoder decoder(5, true);
  SenderBytes sender(5);
  sender.fragment(0, {}).fragment(1, {}).fragment(3, {});
  ASSERT_EQ(decoder.take(sender.bytes(), fixture.queue).state, State::hungry);
  EXPECT_EQ(decoder.disconnect(fixture.queue), ReceiveFault::none);
  EXPECT_EQ(fixture.queue.numbers().last_decided(), 1U);
  ASSERT_TRUE(fixture.queue.numbers().confirm_held());
  SenderBytes again(5);
  again.fragment(3, {}).fragment(4, {});
  decoder.leave_out_below(4);
  ASSERT_EQ(decoder.take(again.bytes(), fixture.queue).state, State::hungry);
  EXPECT_EQ(decoder.repeats_skipped(), 1U);
  EXPECT_EQ(fixture.queue.numbers().dropped(wire::DropReason::number_repeat), 0U);
  EXPECT_EQ(fixture.queue.numbers().written(), 4U);
}

// Its counter may have been reset before the run, or the number is wrong.
TEST(ReceiveDecoder, after_a_number_that_fell_all_is_sent_again) {
  for (const bool reset : {true, false}) {
    QueueFixture fixture({.source = 5, .window = 64});
    fixture.queue.numbers().allow_reset(CounterReset::yes);
    ReceiveDecoder decoder(5, true);
    SenderBytes sender(5);
    sender.fragment(5000, {}).fragment(5001, {}).fragment(5002, {}).fragment(3, {});
    ASSERT_EQ(decoder.take(sender.bytes(), fixture.queue).state, State::hungry);
    EXPECT_EQ(decoder.disconnect(fixture.queue), ReceiveFault::none);
    EXPECT_EQ(fixture.queue.numbers().last_decided(), std::nullopt);
    SenderBytes again(5);
    again.fragment(5000, {}).fragment(5001, {}).fragment(5002, {});
    if (reset) {
      again.fragment(3, {}).fragment(4, {}).fragment(5, {});
    } else {
      again.fragment(5003, {}).fragment(5004, {});
    }
    ASSERT_EQ(decoder.take(again.bytes(), fixture.queue).state, State::hungry);
    EXPECT_EQ(fixture.queue.numbers().written(), reset ? 3U : 5U);
    EXPECT_EQ(fixture.queue.next_event(), reset ? 6U : 5005U);
  }
}

// A network damages one message of a sender that keeps what it has sent: a byte too many, one too
// few, or other bytes, anywhere in the header. When this is noticed, all messages are under way.
// The sender comes back until all is there, and loses its connection again and again.
class ComingBack {
public:
  explicit ComingBack(Random& random) : random_(random) {
    narrow_ = random.chance(1, 4);
    offset_ = random.chance(1, 4) ? 1000 : 0;
    damaged_ = 1 + random.below(events - 1);
    left_out_ = random.below(2 * events);
    may_fall_ = random.chance(1, 2);
  }

  void run() {
    QueueFixture fixture({.source = 5,
                          .window = 1024,
                          .fragment_max = 1 << 14,
                          .counter_bits = narrow_ ? 32 : 64,
                          .offset = offset_},
                         {.page_size = 4096, .pages = 64});
    FragmentQueue& queue = fixture.queue;
    if (may_fall_) queue.numbers().allow_reset(CounterReset::yes);
    ReceiveDecoder decoder(5, true);
    decoder.connect(true);
    Bytes bytes = damage(messages_after({}));
    for (int turn = 0; turn < 4; ++turn) {
      decoder.leave_out_below(announced(queue));
      const State state = decoder.take(bytes, queue).state;
      (void)decoder.disconnect(queue);
      if (state == State::hungry && turn == 3) break;
      bytes = messages_after(fixture.queue.numbers().last_decided());
      if (turn < 2) bytes.resize(random_.below(bytes.size() + 1));
    }
    queue.numbers().end_held();
    for (EventNumber event = 0; event < events; ++event) {
      if (!sends(event)) continue;
      const EventNumber number = event + static_cast<EventNumber>(offset_);
      ASSERT_FALSE(queue.entry(number).absent()) << event;
      ASSERT_EQ(payload_of(queue, number), payload(event)) << event;
    }
  }
  [[nodiscard]] std::string text() const {
    return fmt::format("{} at event {}, without {}{}{}, offset {}", damage_, damaged_, left_out_,
                       narrow_ ? ", 32 bits" : "", may_fall_ ? ", may fall" : "", offset_);
  }

private:
  static constexpr EventNumber events = 200;

  static Bytes payload(EventNumber event) { return bytes_of(20 + event % 50, event); }
  // At most one is left out, and none near the one that is damaged.
  [[nodiscard]] bool sends(EventNumber event) const {
    return event != left_out_ || event < 20 || (event + 20 > damaged_ && event < damaged_ + 20);
  }
  [[nodiscard]] std::uint64_t announced(const FragmentQueue& queue) {
    if (narrow_ || !queue.numbered()) return 0; // as the source
    return random_.below(queue.numbers().counter_of(queue.next_event()) + 1);
  }
  // What the sender sends when the answer names this number; at first a fifth of the fragments come
  // behind a *skip to*, which it does not keep.
  Bytes messages_after(std::optional<std::uint64_t> last) {
    SenderBytes sender(5);
    sender.reliable();
    for (EventNumber event = 0; event < events; ++event) {
      if (!sends(event) || (last && event <= *last)) continue;
      const bool skips = event > 0 && (event % 5 == 0 || event - 1 == left_out_);
      if (skips && !last) sender.skip_to(event);
      if (event == damaged_) damaged_at_ = sender.bytes().size();
      sender.fragment(event, payload(event));
    }
    return sender.bytes();
  }
  Bytes damage(Bytes bytes) {
    // Eight bytes may change.
    const std::size_t at = random_.below(header_size + payload(damaged_).size() - 8);
    const auto place = bytes.begin() + static_cast<std::ptrdiff_t>(damaged_at_ + at);
    const std::uint64_t kind = random_.below(3);
    damage_ = std::array{"a byte more", "a byte less", "other bytes"}[kind];
    if (kind == 0) bytes.insert(place, std::byte(random_.below(256)));
    if (kind == 1) bytes.erase(place);
    const std::uint64_t others = kind == 2 ? 1 + random_.below(8) : 0;
    for (std::uint64_t i = 0; i < others; ++i) {
      *(place + static_cast<std::ptrdiff_t>(i)) = std::byte(random_.below(256));
    }
    return bytes;
  }

  Random& random_;
  bool narrow_ = false;
  bool may_fall_ = false;
  std::int64_t offset_ = 0;
  EventNumber damaged_ = 0;
  EventNumber left_out_ = 0;
  std::size_t damaged_at_ = 0;
  const char* damage_ = "";
};

TEST(ReceiveDecoder, a_damaged_message_costs_no_other_fragment_of_a_sender_that_comes_back) {
  for (std::uint64_t seed = 0; seed < 1000; ++seed) {
    Random random(seed);
    ComingBack sender(random);
    ASSERT_NO_FATAL_FAILURE(sender.run()) << "seed " << seed << ": " << sender.text();
  }
}

// A fragment has the number of a *skip to* that is held, and was never sent before.
TEST(ReceiveDecoder, a_fragment_behind_a_held_skip_is_not_left_out) {
  for (const bool taken : {false, true}) {
    QueueFixture fixture({.source = 5, .window = 64});
    fixture.queue.start(0);
    ReceiveDecoder decoder(5, true);
    SenderBytes sender(5);
    sender.fragment(0, {}).skip_to(10);
    ASSERT_EQ(decoder.take(sender.bytes(), fixture.queue).state, State::hungry);
    ASSERT_EQ(decoder.disconnect(fixture.queue), ReceiveFault::none);
    ASSERT_EQ(fixture.queue.numbers().held(), 9U);
    EXPECT_EQ(fixture.queue.numbers().last_decided(), 0U);
    if (taken) {
      ASSERT_TRUE(fixture.queue.numbers().confirm_held());
    }
    SenderBytes again(5);
    again.fragment(10, {}).fragment(11, {});
    ASSERT_EQ(decoder.take(again.bytes(), fixture.queue).state, State::hungry);
    EXPECT_EQ(fixture.queue.numbers().written(), 3U);
    EXPECT_EQ(decoder.repeats_skipped(), 0U);
  }
}

TEST(ReceiveDecoder, a_narrow_counter_that_comes_to_a_held_number_again_is_not_left_out) {
  QueueFixture fixture({.source = 5, .window = 1024, .counter_bits = 8});
  fixture.queue.start(0);
  ReceiveDecoder decoder(5, true);
  SenderBytes before(5);
  before.fragment(0, {}).fragment(1, {}).fragment(4, {});
  ASSERT_EQ(decoder.take(before.bytes(), fixture.queue).state, State::hungry);
  ASSERT_EQ(decoder.disconnect(fixture.queue), ReceiveFault::none);
  SenderBytes after(5);
  for (EventNumber event = 4; event < 700; ++event) after.fragment(event % 256, {});
  ASSERT_EQ(decoder.take(after.bytes(), fixture.queue).state, State::hungry);
  EXPECT_EQ(fixture.queue.numbers().written(), 698U);
  EXPECT_EQ(decoder.repeats_skipped(), 1U);
}

TEST(ReceiveDecoder, a_number_that_was_not_accepted_is_not_the_last_one) {
  const auto last = [](FragmentQueueOptions options, std::initializer_list<EventNumber> events) {
    options.source = 5;
    options.window = 1024;
    QueueFixture fixture(options);
    ReceiveDecoder decoder(5, true);
    SenderBytes sender(5);
    for (const EventNumber event : events) sender.fragment(event, {});
    EXPECT_EQ(decoder.take(sender.bytes(), fixture.queue).state, State::hungry);
    EXPECT_EQ(decoder.disconnect(fixture.queue), ReceiveFault::none);
    return fixture.queue.numbers().last_decided();
  };
  EXPECT_EQ(last({.counter_bits = 24}, {0, 1, 2 | EventNumber{1} << 40}), 2U) << "ignored bits";
  EXPECT_EQ(last({.first = 10}, {0, 768}), std::nullopt);
  EXPECT_EQ(last({.first = 10}, {0, 10}), 10U);
  EXPECT_EQ(last({.counter_bits = 8}, {253, 254, 255, 5}), 255U) << "5 is 261";
}

TEST(ReceiveDecoder, what_was_held_and_is_confirmed_after_the_connection_was_taken) {
  QueueFixture fixture({.source = 5, .window = 64, .offset = 100});
  fixture.queue.start(100);
  ReceiveDecoder decoder(5, true);
  SenderBytes sender(5);
  sender.fragment(0, {}).fragment(1, {}).fragment(4, {});
  ASSERT_EQ(decoder.take(sender.bytes(), fixture.queue).state, State::hungry);
  ASSERT_EQ(decoder.disconnect(fixture.queue), ReceiveFault::none);
  EXPECT_EQ(fixture.queue.numbers().last_decided(), 1U);
  ASSERT_TRUE(fixture.queue.numbers().confirm_held());
  EXPECT_EQ(fixture.queue.numbers().last_decided(), 4U);
}

TEST(ReceiveDecoder, a_queue_that_was_emptied_meanwhile_drops_the_rest_of_the_fragment) {
  SenderBytes sender(5);
  sender.fragment(0, bytes_of(100, 0)).fragment(70, bytes_of(100, 1));
  QueueFixture fixture({.source = 5, .window = 64});
  ReceiveDecoder decoder(5, true);
  const auto bytes = std::span<const std::byte>(sender.bytes());
  ASSERT_EQ(decoder.take(bytes.first(100), fixture.queue).state, State::hungry);
  fixture.queue.start(70);
  ASSERT_EQ(decoder.take(bytes.subspan(100), fixture.queue).state, State::hungry);
  EXPECT_EQ(payload_of(fixture.queue, 70), bytes_of(100, 1));
}

} // namespace
} // namespace fanin::source
