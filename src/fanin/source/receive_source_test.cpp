#include "fanin/source/receive_source.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <string>
#include <vector>

#include "fanin/base/testing/failing_calls.hpp"
#include "fanin/source/testing/receive_bench.hpp"

namespace fanin::source {
namespace {

using Bench = testing::ReceiveBench;
using Peer = testing::SenderSocket;
using testing::Bytes;
using testing::bytes_of;
using testing::new_port;
using testing::payload_of;
using testing::send_spill;
using testing::SenderBytes;

TEST(ReceiveSource, looks_its_name_up_before_the_run_and_not_when_it_starts) {
  int asked = 0;
  bool known = false;
  const auto source =
      ReceiveSource::make(
          {.source = 5,
           .port = new_port("tcp://readout-1:0",
                            [&](const net::Url& url) -> Result<std::vector<net::Address>> {
                              ++asked;
                              if (!known)
                                return fail(ErrorKind::not_found, url.text() + ": unknown");
                              return net::addresses_of_number("127.0.0.1").value();
                            }),
           .listen_from = "run.toml:12: listen"})
          .value();
  EXPECT_EQ(source->prepare().error().text, "run.toml:12: listen: tcp://readout-1: unknown");
  known = true;
  ASSERT_TRUE(source->prepare());
  EXPECT_EQ(asked, 2);
  for (int i = 0; i < 2; ++i) ASSERT_TRUE(source->start(0, Time{}));
  EXPECT_EQ(asked, 2);
  EXPECT_NE(source->listening_url(), "");
}

TEST(ReceiveSource, reports_the_port_that_was_chosen) {
  const Bench bench;
  EXPECT_THAT(bench.source->listening_url(),
              ::testing::MatchesRegex("tcp://127.0.0.1:[1-9][0-9]*"));
}

TEST(ReceiveSource, fragments_of_a_connection_go_into_the_queue) {
  Bench bench;
  Peer peer(*bench.source);
  SenderBytes sender(5);
  sender.preface();
  for (EventNumber event = 0; event < 300; ++event) {
    sender.fragment(event, bytes_of(event * 3, event));
  }
  peer.send(sender.end().bytes());
  bench.read_until([&] { return bench.last.state == ReadState::finished; });
  ASSERT_EQ(bench.fixture.queue.written(), 300U);
  for (EventNumber event = 0; event < 300; ++event) {
    ASSERT_EQ(payload_of(bench.fixture.queue, event), bytes_of(event * 3, event));
  }
  EXPECT_EQ(bench.counter("connections"), 1U);
}

TEST(ReceiveSource, large_fragments_arrive_whole_over_many_reads) {
  Bench bench;
  Peer peer(*bench.source);
  SenderBytes sender(5);
  sender.preface();
  for (EventNumber event = 0; event < 4; ++event) sender.fragment(event, bytes_of(900000, event));
  std::size_t sent = 0;
  const auto bytes = std::span<const std::byte>(sender.bytes());
  bench.read_until([&] {
    sent += peer.send_some(bytes.subspan(sent));
    return bench.fixture.queue.written() == 4;
  });
  for (EventNumber event = 0; event < 4; ++event) {
    ASSERT_EQ(payload_of(bench.fixture.queue, event), bytes_of(900000, event));
  }
}

TEST(ReceiveSource, a_full_queue_pushes_back_to_the_sender_and_nothing_is_lost) {
  Bench bench(16);
  FragmentQueue& queue = bench.fixture.queue;
  Peer peer(*bench.source);
  SenderBytes sender(5);
  sender.preface();
  constexpr EventNumber count = 3000; // 24 MB: more than the kernel holds for a connection
  for (EventNumber event = 0; event < count; ++event) sender.fragment(event, bytes_of(8000, event));
  auto rest = std::span<const std::byte>(sender.bytes());
  for (bool pushed_back = false; !pushed_back;) {
    const std::size_t sent = peer.send_some(rest);
    rest = rest.subspan(sent);
    ASSERT_FALSE(rest.empty());
    ASSERT_NE(bench.source->read(queue, Time{}).state, ReadState::failed);
    pushed_back = sent == 0 && queue.throttled();
  }
  EXPECT_EQ(queue.written(), 16U);
  while (queue.written() < count) {
    queue.release_until(queue.next_event());
    rest = rest.subspan(peer.send_some(rest));
    ASSERT_NE(bench.source->read(queue, Time{}).state, ReadState::failed);
  }
  EXPECT_EQ(queue.next_event(), count);
  EXPECT_EQ(bench.counter("bad_checksum"), 0U);
}

TEST(ReceiveSource, bad_bytes_close_the_connection_with_a_name_and_another_may_come) {
  Bench bench;
  bench.fixture.queue.start(0);
  Peer stray(*bench.source);
  stray.send(Bytes(100, std::byte{'G'}));
  bench.read_until([&] { return bench.counter("bad_preface") == 1; });
  EXPECT_TRUE(stray.closed());

  Peer broken(*bench.source);
  SenderBytes sender(5);
  sender.preface().fragment(0, bytes_of(10, 0));
  broken.send(sender.bytes());
  broken.send(Bytes(24, std::byte{0xff}));
  bench.read_until([&] { return bench.counter("bad_mark") == 1; });

  Peer cut(*bench.source);
  sender.bytes().clear();
  sender.preface().fragment(1, bytes_of(10, 1)).fragment(2, bytes_of(1000, 2));
  sender.bytes().resize(sender.bytes().size() - 1);
  cut.send(sender.bytes());
  cut.close();
  bench.read_until([&] { return bench.counter("cut_short") == 1; });

  Peer good(*bench.source);
  sender.bytes().clear();
  good.send(sender.preface().fragment(2, bytes_of(10, 2)).end().bytes());
  bench.read_until([&] { return bench.last.state == ReadState::finished; });
  EXPECT_EQ(bench.fixture.queue.written(), 3U);
  EXPECT_EQ(payload_of(bench.fixture.queue, 2), bytes_of(10, 2));
  EXPECT_EQ(bench.counter("connections"), 4U);
}

TEST(ReceiveSource, after_the_end_of_the_data_it_listens_only_when_it_is_started_again) {
  Bench bench;
  SenderBytes sender(5);
  Peer first(*bench.source);
  first.send(sender.preface().fragment(0, bytes_of(10, 0)).end().bytes());
  bench.read_until([&] { return bench.last.state == ReadState::finished; });
  EXPECT_EQ(bench.source->listening_url(), "");
  ASSERT_TRUE(bench.source->start(1, Time{}));
  sender.bytes().clear();
  Peer second(*bench.source);
  second.send(sender.preface().fragment(1, bytes_of(10, 1)).bytes());
  bench.read_until([&] { return bench.fixture.queue.written() == 2; });
}

TEST(ReceiveSource, a_sender_that_pauses_is_not_waited_for_until_it_sends_again) {
  Bench bench;
  SenderBytes sender(5);
  {
    Peer first(*bench.source);
    first.send(sender.preface().fragment(0, {}).fragment(1, {}).pause().bytes());
    bench.read_until([&] { return bench.last.state == ReadState::paused; });
    EXPECT_EQ(bench.fixture.queue.written(), 2U);
  }
  bench.read_until([&] { return bench.log.back().ends_with("closed by the sender"); });
  EXPECT_EQ(bench.last.state, ReadState::paused);
  sender.bytes().clear();
  Peer second(*bench.source);
  second.send(sender.preface().fragment(2, {}).bytes());
  bench.read_until([&] { return bench.fixture.queue.written() == 3; });
  EXPECT_EQ(bench.last.state, ReadState::waiting);
}

TEST(ReceiveSource, connections_that_were_closed_before_any_was_read_are_all_read) {
  Bench bench;
  for (EventNumber spill = 0; spill < 20; ++spill) {
    send_spill(*bench.source, spill * 30, spill * 30 + 30);
  }
  bench.read_until([&] { return bench.fixture.queue.next_event() == 600; });
  EXPECT_EQ(bench.fixture.queue.written(), 600U);
  EXPECT_EQ(bench.counter("connections"), 20U);
  EXPECT_EQ(bench.counter("refused"), 0U);
}

TEST(ReceiveSource, a_connection_that_comes_before_the_end_of_the_first_is_read_waits) {
  Bench bench;
  bench.fixture.queue.start(0);
  SenderBytes sender(5);
  Peer first(*bench.source);
  first.send(sender.preface().fragment(0, bytes_of(10, 0)).bytes());
  bench.read_until([&] { return bench.fixture.queue.written() == 1; });
  sender.bytes().clear();
  first.send(sender.fragment(1, bytes_of(10, 1)).bytes());
  first.close();
  send_spill(*bench.source, 2, 4);
  bench.read_until([&] { return bench.fixture.queue.written() == 4; });
  EXPECT_EQ(bench.counter("refused"), 0U);
}

TEST(ReceiveSource, connections_that_come_while_the_queue_is_full_are_read_later) {
  Bench bench(16);
  FragmentQueue& queue = bench.fixture.queue;
  for (EventNumber spill = 0; spill < 40; ++spill) {
    send_spill(*bench.source, spill * 10, spill * 10 + 10, 3000);
    ASSERT_EQ(bench.source->read(queue, bench.now).state, ReadState::waiting);
  }
  EXPECT_EQ(queue.written(), 16U);
  bench.read_until([&] {
    queue.release_until(queue.next_event());
    return queue.written() == 400;
  });
  EXPECT_EQ(bench.counter("connections"), 40U);
  EXPECT_EQ(bench.counter("refused"), 0U);
}

TEST(ReceiveSource, a_second_sender_waits_until_the_first_has_closed_and_the_log_says_so) {
  Bench bench;
  bench.fixture.queue.start(0);
  Peer first(*bench.source);
  SenderBytes sender(5);
  first.send(sender.preface().fragment(0, bytes_of(10, 0)).bytes());
  bench.read_until([&] { return bench.fixture.queue.written() == 1; });
  send_spill(*bench.source, 2, 3);
  bench.last = bench.source->read(bench.fixture.queue, bench.now);
  EXPECT_EQ(bench.last.state, ReadState::waiting);
  bench.now = bench.last.wake;
  bench.last = bench.source->read(bench.fixture.queue, bench.now);
  EXPECT_THAT(bench.log, ::testing::Contains(::testing::HasSubstr("another sender")).Times(1));
  EXPECT_EQ(bench.last.wake, never);
  sender.bytes().clear();
  first.send(sender.fragment(1, bytes_of(10, 1)).bytes());
  first.close();
  bench.read_until([&] { return bench.fixture.queue.written() == 3; });
  EXPECT_EQ(bench.counter("refused"), 0U);
}

// Its numbers are lower, so that it could not send them any more.
TEST(ReceiveSource, who_has_to_send_again_has_its_turn_before_those_who_wait) {
  for (const bool comes_back : {true, false}) {
    Bench bench;
    FragmentQueue& queue = bench.fixture.queue;
    queue.start(0);
    SenderBytes sender(5);
    sender.preface_of(3, 7).fragment(0, bytes_of(10, 0)).fragment(1, bytes_of(10, 1));
    sender.bytes().back() ^= std::byte{1};
    Peer first(*bench.source);
    first.send(sender.bytes());
    SenderBytes other(5);
    other.preface_of(3, 8).fragment(3, bytes_of(10, 3)).fragment(4, bytes_of(10, 4));
    Peer second(*bench.source);
    second.send(other.bytes());
    bench.read_until([&] { return bench.counter("damaged") == 1; });
    bench.last = bench.source->read(queue, bench.now);
    EXPECT_EQ(bench.last.wake, bench.now + std::chrono::milliseconds{500});
    EXPECT_EQ(queue.next_event(), 1U);
    if (comes_back) {
      SenderBytes again(5);
      again.preface_of(3, 7).fragment(1, bytes_of(10, 1)).fragment(2, bytes_of(10, 2));
      Peer back(*bench.source);
      back.send(again.bytes());
      bench.read_until([&] { return queue.next_event() == 3; });
      back.close(); // which resets the connection, since the answer was not read
      bench.last = bench.source->read(queue, bench.now);
    }
    bench.now = bench.last.wake;
    bench.read_until([&] { return queue.next_event() == 5; });
    EXPECT_EQ(queue.entry(1).absent(), !comes_back);
  }
}

// A sender with a connection for each spill does not wait for anything, and the reader is slow.
TEST(ReceiveSource, many_connections_have_their_turns_in_the_order_in_which_they_came) {
  constexpr EventNumber count = 200;
  Bench bench;
  FragmentQueue& queue = bench.fixture.queue;
  queue.start(0);
  for (EventNumber event = 0; event < count; ++event) {
    const Peer peer(*bench.source);
    peer.send(SenderBytes(5).preface().fragment(event, bytes_of(10, event)).bytes());
  }
  bench.read_until([&] { return bench.counter("connections") == count; });
  bench.last = bench.source->read(queue, bench.now);
  EXPECT_EQ(queue.written(), count);
}

// It has nothing more to send, unless what follows the pause was damaged.
TEST(ReceiveSource, a_sender_that_pauses_keeps_its_place_only_if_something_follows) {
  for (const bool follows : {false, true}) {
    Bench bench;
    bench.fixture.queue.start(0);
    Peer first(*bench.source);
    first.send(SenderBytes(5).preface_of(3, 7).fragment(0, bytes_of(10, 0)).pause().bytes());
    Peer second(*bench.source);
    second.send(SenderBytes(5).preface().fragment(1, bytes_of(10, 1)).bytes());
    bench.read_until([&] { return bench.fixture.queue.next_event() == 1; });
    if (follows) {
      first.send(Bytes(24));
      bench.read_until([&] { return bench.counter("bad_mark") == 1; });
      bench.last = bench.source->read(bench.fixture.queue, bench.now);
      EXPECT_EQ(bench.fixture.queue.next_event(), 1U);
      EXPECT_EQ(bench.last.wake, bench.now + std::chrono::milliseconds{500});
      bench.now = bench.last.wake;
    } else {
      first.close(); // which resets the connection, since the answer was not read
    }
    bench.read_until([&] { return bench.fixture.queue.next_event() == 2; });
  }
}

TEST(ReceiveSource, who_comes_back_again_and_again_without_a_message_keeps_nobody_out) {
  Bench bench;
  bench.fixture.queue.start(0);
  std::size_t rounds = 0;
  std::optional<Peer> other;
  bench.read_until([&] {
    if (bench.counter("bad_mark") == rounds && rounds < 20) {
      Peer faulty(*bench.source);
      faulty.send(SenderBytes(5).preface_of(3, 7).bytes());
      faulty.send(Bytes(24));
      ++rounds;
      if (!other) {
        other.emplace(*bench.source);
        other->send(SenderBytes(5).preface().fragment(0, bytes_of(10, 0)).bytes());
      }
    }
    return bench.fixture.queue.next_event() == 1;
  });
  EXPECT_EQ(bench.counter("bad_mark"), 6U);
}

TEST(ReceiveSource, a_connection_without_a_preface_keeps_nobody_waiting) {
  Bench bench;
  bench.fixture.queue.start(0);
  const Peer silent(*bench.source);
  Peer dripping(*bench.source);
  dripping.send(Bytes(1, std::byte{'F'}));
  send_spill(*bench.source, 0, 1);
  bench.read_until([&] { return bench.fixture.queue.written() == 1; });
  EXPECT_FALSE(silent.closed()) << "its preface may be under way";
  SenderBytes sender(5);
  sender.preface().fragment(1, bytes_of(10, 1));
  dripping.send(Bytes(sender.bytes().begin() + 1, sender.bytes().end()));
  bench.read_until([&] { return bench.fixture.queue.written() == 2; });
}

TEST(ReceiveSource, of_too_many_connections_without_a_preface_the_oldest_gives_way) {
  Bench bench;
  bench.fixture.queue.start(0);
  std::vector<Peer> silent;
  for (std::size_t i = 0; i < ReceivePort::unidentified_max; ++i)
    silent.emplace_back(*bench.source);
  bench.last = bench.source->read(bench.fixture.queue, bench.now);
  while (bench.last.state == ReadState::more) {
    bench.last = bench.source->read(bench.fixture.queue, bench.now);
  }
  EXPECT_EQ(bench.last.wake, never);
  send_spill(*bench.source, 0, 1);
  bench.last = bench.source->read(bench.fixture.queue, bench.now);
  ASSERT_EQ(bench.last.state, ReadState::waiting);
  EXPECT_FALSE(silent.front().closed()) << "its preface may be under way";
  bench.now = bench.last.wake;
  bench.read_until([&] { return bench.fixture.queue.written() == 1; });
  EXPECT_TRUE(silent.front().closed());
  EXPECT_FALSE(silent.back().closed());
  EXPECT_EQ(bench.counter("no_preface"), 1U);
}

TEST(ReceiveSource, of_very_many_waiting_senders_most_lie_in_the_listen_queue_and_none_is_lost) {
  Bench bench;
  bench.fixture.queue.start(0);
  Peer first(*bench.source);
  SenderBytes sender(5);
  first.send(sender.preface().fragment(0, bytes_of(10, 0)).bytes());
  bench.read_until([&] { return bench.fixture.queue.written() == 1; });
  constexpr EventNumber count = ReceivePort::waiting_max + 100;
  for (EventNumber event = 1; event <= count; ++event) send_spill(*bench.source, event, event + 1);
  do {
    bench.last = bench.source->read(bench.fixture.queue, bench.now);
  } while (bench.last.state == ReadState::more);
  EXPECT_EQ(bench.fixture.queue.written(), 1U);
  first.close();
  bench.read_until([&] {
    bench.fixture.queue.release_until(bench.fixture.queue.next_event());
    return bench.fixture.queue.written() == count + 1;
  });
  EXPECT_EQ(bench.counter("refused"), 0U);
}

TEST(ReceiveSource, who_waits_when_the_data_end_is_refused_counted_and_said) {
  Bench bench;
  Peer first(*bench.source);
  SenderBytes sender(5);
  first.send(sender.preface().fragment(0, bytes_of(10, 0)).end().bytes());
  Peer second(*bench.source);
  Peer third(*bench.source);
  bench.read_until([&] { return bench.last.state == ReadState::finished; });
  EXPECT_TRUE(second.closed());
  EXPECT_EQ(bench.counter("refused"), 2U);
  EXPECT_THAT(bench.log, ::testing::Contains(::testing::HasSubstr("2 connections refused")));
}

TEST(ReceiveSource, many_bad_connections_fill_no_log) {
  Bench bench;
  bench.fixture.queue.start(0);
  for (std::uint64_t i = 0; i < 50; ++i) {
    const Peer stray(*bench.source);
    stray.send(Bytes(100, std::byte{'G'}));
  }
  bench.read_until([&] { return bench.counter("bad_preface") == 50; });
  EXPECT_LE(bench.log.size(), 10U);
  bench.now += std::chrono::seconds{2};
  const Peer later(*bench.source);
  later.send(Bytes(100, std::byte{'G'}));
  bench.read_until([&] { return bench.counter("bad_preface") == 51; });
  EXPECT_THAT(bench.log, ::testing::Contains(::testing::HasSubstr("lines were left out")));
}

TEST(ReceiveSource, a_rejoin_keeps_the_sender_and_drops_the_open_fragment) {
  Bench bench;
  Peer peer(*bench.source);
  SenderBytes sender(5);
  sender.preface().fragment(0, bytes_of(10, 0)).fragment(1, bytes_of(1000, 1));
  const Bytes head(sender.bytes().begin(), sender.bytes().end() - 500);
  const Bytes tail(sender.bytes().end() - 500, sender.bytes().end());
  peer.send(head);
  bench.read_until(
      [&] { return bench.fixture.queue.open() && bench.fixture.queue.missing() == 500; });
  bench.fixture.queue.start(50);
  ASSERT_TRUE(bench.source->start(50, Time{}));
  peer.send(tail);
  sender.bytes().clear();
  peer.send(sender.fragment(49, bytes_of(10, 49)).fragment(50, bytes_of(10, 50)).bytes());
  bench.read_until([&] { return bench.fixture.queue.next_event() == 51; });
  EXPECT_EQ(payload_of(bench.fixture.queue, 50), bytes_of(10, 50));
  EXPECT_EQ(bench.fixture.queue.dropped(wire::DropReason::late), 1U);
}

// What has come over `peer` from the source: the answer, then acknowledgements.
std::vector<std::uint64_t> acknowledged(const Peer& peer) {
  std::vector<std::uint64_t> numbers;
  while (peer.available() >= sizeof(ReceiveHeader)) {
    const Bytes bytes = peer.received(sizeof(ReceiveHeader));
    ReceiveHeader header;
    std::memcpy(&header, bytes.data(), sizeof header);
    EXPECT_EQ(header.mark, receive_mark);
    EXPECT_EQ(header.kind, ReceiveKind::announced);
    EXPECT_EQ(header.source, 5U);
    numbers.push_back(header.event);
  }
  return numbers;
}
ReceiveAnswer answer_of(const Peer& peer) {
  const Bytes bytes = peer.received(sizeof(ReceiveAnswer));
  ReceiveAnswer answer;
  EXPECT_EQ(bytes.size(), sizeof answer);
  if (bytes.size() == sizeof answer) std::memcpy(&answer, bytes.data(), sizeof answer);
  return answer;
}

TEST(ReceiveSource, version_3_is_told_what_is_announced_and_again_when_it_comes_back) {
  Bench bench;
  bench.fixture.queue.start(0);
  Peer peer(*bench.source);
  SenderBytes sender(5);
  sender.preface_of(3, 77);
  for (EventNumber event = 0; event < 8; ++event) sender.fragment(event, bytes_of(10, event));
  peer.send(sender.bytes());
  bench.read_until([&] { return bench.fixture.queue.next_event() == 8; });
  EXPECT_EQ(answer_of(peer).version, 3);
  EXPECT_THAT(acknowledged(peer), ::testing::IsEmpty());
  bench.source->announced(3);
  bench.source->announced(3);
  bench.source->announced(6);
  EXPECT_THAT(acknowledged(peer), ::testing::ElementsAre(3, 6));

  const Peer again(*bench.source);
  SenderBytes more(5);
  again.send(more.preface_of(3, 77).fragment(8, bytes_of(10, 8)).bytes());
  bench.read_until([&] { return bench.fixture.queue.next_event() == 9; });
  EXPECT_EQ(answer_of(again).last, 7U);
  EXPECT_THAT(acknowledged(again), ::testing::ElementsAre(6));
}

TEST(ReceiveSource, version_4_is_answered_and_acknowledged_with_checksums) {
  Bench bench;
  bench.fixture.queue.start(0);
  const Peer peer(*bench.source);
  SenderBytes sender(5);
  peer.send(sender.preface_of(4, 77).fragment(0, bytes_of(10, 0)).bytes());
  bench.read_until([&] { return bench.fixture.queue.next_event() == 1; });
  bench.source->announced(1);
  const auto next = [&] {
    Bytes bytes = peer.received(32);
    EXPECT_EQ(bytes.size(), 32U);
    EXPECT_TRUE(own_checksum_fits(bytes));
    return bytes;
  };
  EXPECT_EQ(next()[8], std::byte{4});
  EXPECT_EQ(next()[8], std::byte{1});
  // A number that is damaged does not count, and the sender is told so.
  SenderBytes damaged(5);
  damaged.in_version(4).fragment(1, bytes_of(10, 1)).bytes()[9] ^= std::byte{1};
  peer.send(damaged.bytes());
  bench.read_until([&] { return bench.counter("damaged") == 1; });
  EXPECT_TRUE(peer.closed());
  EXPECT_EQ(bench.fixture.queue.held(), std::nullopt);
}

TEST(ReceiveSource, each_connection_has_its_own_version) {
  Bench bench;
  bench.fixture.queue.start(0);
  EventNumber event = 0;
  for (const std::uint16_t version :
       {std::uint16_t{4}, std::uint16_t{3}, std::uint16_t{2}, std::uint16_t{4}}) {
    const Peer peer(*bench.source);
    SenderBytes sender(5);
    sender.preface_of(version, 10U + version).fragment(event, bytes_of(10, event));
    peer.send(sender.bytes());
    ++event;
    bench.read_until([&] { return bench.fixture.queue.next_event() == event; });
    bench.source->announced(event);
    // The answer, the latest acknowledgement if there is one, and a new one.
    const std::size_t messages = !has_acknowledgements(version) ? 1 : event == 1 ? 2 : 3;
    const std::size_t size = messages * size_in<ReceiveAnswer>(version);
    EXPECT_EQ(peer.available(), size) << version;
    (void)peer.received(size); // what is unread would reset the connection
  }
}

// Nobody sends again what this one has sent.
TEST(ReceiveSource, a_damaged_header_of_a_sender_without_a_number_ends_its_connection) {
  Bench bench;
  bench.fixture.queue.start(0);
  const Peer peer(*bench.source);
  SenderBytes sender(5);
  sender.preface_of(4, 0).fragment(0, bytes_of(10, 0)).bytes().back() ^= std::byte{1};
  const std::size_t header = sender.bytes().size();
  sender.fragment(1, bytes_of(10, 1)).bytes()[header + 8] ^= std::byte{1};
  peer.send(sender.bytes());
  bench.read_until([&] { return bench.counter("damaged") == 1; });
  (void)peer.received(size_in<ReceiveAnswer>(4));
  EXPECT_TRUE(peer.closed());
  EXPECT_EQ(bench.fixture.queue.entry(0).flags(), wire::fragment_bad_checksum);
  EXPECT_THAT(bench.log, ::testing::Not(::testing::Contains(::testing::HasSubstr("again"))));
  const Peer other(*bench.source);
  SenderBytes next(5);
  other.send(next.preface_of(4, 9).fragment(1, bytes_of(10, 1)).bytes());
  bench.read_until([&] { return bench.fixture.queue.next_event() == 2; });
}

// The bytes of a header have moved by one: what follows is no header, and its number is wrong.
TEST(ReceiveSource, version_3_is_not_told_a_number_that_may_be_wrong) {
  Bench bench;
  bench.fixture.queue.start(0);
  const Peer peer(*bench.source);
  SenderBytes sender(5);
  sender.preface_of(3, 77);
  for (EventNumber event = 0; event < 8; ++event) sender.fragment(event, bytes_of(10, event));
  sender.fragment(8 << 8, bytes_of(10, 8)).bytes().resize(sender.bytes().size() + 24);
  peer.send(sender.bytes());
  bench.read_until([&] { return bench.counter("bad_mark") == 1; });

  const Peer again(*bench.source);
  SenderBytes rest(5);
  rest.preface_of(3, 77);
  for (EventNumber event = 8; event < 12; ++event) rest.fragment(event, bytes_of(10, event));
  again.send(rest.bytes());
  bench.read_until([&] { return bench.fixture.queue.next_event() == 12; });
  EXPECT_EQ(answer_of(again).last, 7U);
  EXPECT_EQ(bench.fixture.queue.written(), 12U);
}

// A sender that has said its end and waits for the close must not take it for success.
TEST(ReceiveSource, a_connection_that_ends_for_a_fault_is_reset) {
  for (const bool fault : {false, true}) {
    Bench bench;
    bench.fixture.queue.start(0);
    const Peer peer(*bench.source);
    SenderBytes sender(5);
    sender.preface_of(2, 77).fragment(0, bytes_of(10, 0));
    if (fault) sender.bytes().resize(sender.bytes().size() + 24);
    peer.send(sender.end().bytes());
    bench.read_until(
        [&] { return bench.last.state == ReadState::finished || bench.counter("bad_mark") == 1; });
    Bytes rest(100);
    ssize_t got = 0;
    while ((got = peer.receive(rest)) > 0) {
    }
    EXPECT_EQ(got, fault ? -ECONNRESET : 0);
  }
}

// The size of fragment 1 is wrong: 2 and 3 are taken for its payload.
TEST(ReceiveSource, a_sender_whose_message_does_not_end_is_closed_and_sends_again) {
  Bench bench;
  bench.fixture.queue.start(0);
  Peer peer(*bench.source);
  SenderBytes sender(5);
  sender.preface_of(3, 77).fragment(0, bytes_of(10, 0));
  ReceiveHeader header = sender.plain(1);
  header.size = 4000;
  sender.header(header).fragment(2, bytes_of(10, 2)).fragment(3, bytes_of(10, 3));
  peer.send(sender.bytes());
  bench.read_until([&] { return bench.fixture.queue.open(); });
  (void)bench.source->read(bench.fixture.queue, Time{}); // there is no more
  const Time now = Time{} + std::chrono::milliseconds{999};
  EXPECT_GT(bench.source->read(bench.fixture.queue, now).wake, now);
  EXPECT_EQ(answer_of(peer).has_last, 0);
  EXPECT_FALSE(peer.closed());
  (void)bench.source->read(bench.fixture.queue, Time{} + std::chrono::seconds{1});
  EXPECT_TRUE(peer.closed());
  EXPECT_EQ(bench.counter("cut_short"), 1U);
  const Peer again(*bench.source);
  SenderBytes rest(5);
  rest.preface_of(3, 77);
  for (EventNumber event = 1; event < 4; ++event) rest.fragment(event, bytes_of(10, event));
  again.send(rest.bytes());
  bench.read_until([&] { return bench.fixture.queue.next_event() == 4; });
  EXPECT_EQ(answer_of(again).last, 0U);
  EXPECT_EQ(bench.fixture.queue.written(), 4U);
}

TEST(ReceiveSource, versions_1_and_2_are_told_nothing) {
  for (const int version : {1, 2}) {
    Bench bench;
    bench.fixture.queue.start(0);
    const Peer peer(*bench.source);
    SenderBytes sender(5);
    if (version == 1) {
      sender.preface();
    } else {
      sender.preface_of(2, 77);
    }
    peer.send(sender.fragment(0, bytes_of(10, 0)).bytes());
    bench.read_until([&] { return bench.fixture.queue.next_event() == 1; });
    bench.source->announced(1);
    if (version == 2) {
      EXPECT_EQ(answer_of(peer).version, 2);
    }
    EXPECT_TRUE(peer.received(1).empty());
    // What repeats is a drop, as always.
    peer.send(SenderBytes(5).fragment(0, bytes_of(10, 0)).fragment(1, bytes_of(10, 1)).bytes());
    bench.read_until([&] { return bench.fixture.queue.next_event() == 2; });
    EXPECT_EQ(bench.fixture.queue.dropped(wire::DropReason::number_repeat), 1U);
  }
}

TEST(ReceiveSource, what_is_announced_and_comes_again_is_not_counted) {
  Bench bench;
  bench.fixture.queue.start(0);
  {
    const Peer peer(*bench.source);
    SenderBytes sender(5);
    sender.preface_of(3, 77);
    for (EventNumber event = 0; event < 4; ++event) sender.fragment(event, bytes_of(10, event));
    peer.send(sender.bytes());
    bench.read_until([&] { return bench.fixture.queue.next_event() == 4; });
  }
  bench.source->announced(3);
  const Peer peer(*bench.source);
  SenderBytes again(5);
  again.preface_of(3, 77);
  for (EventNumber event = 0; event < 3; ++event) again.fragment(event, bytes_of(900, event));
  peer.send(again.skip_to(1).fragment(3, bytes_of(10, 3)).fragment(4, bytes_of(10, 4)).bytes());
  bench.read_until([&] { return bench.fixture.queue.next_event() == 5; });
  EXPECT_EQ(bench.fixture.queue.written(), 5U);
  EXPECT_EQ(bench.fixture.queue.dropped(wire::DropReason::number_back), 0U);
  EXPECT_EQ(bench.fixture.queue.dropped(wire::DropReason::number_repeat), 1U) << "3 was not";
  EXPECT_EQ(payload_of(bench.fixture.queue, 4), bytes_of(10, 4));
}

// It was not waited for any longer, and others were announced meanwhile.
TEST(ReceiveSource, what_comes_first_when_it_is_announced_is_late) {
  Bench bench;
  bench.fixture.queue.start(0);
  const auto send = [&bench](std::initializer_list<EventNumber> events) {
    const Peer peer(*bench.source);
    SenderBytes sender(5);
    sender.preface_of(3, 77);
    for (const EventNumber event : events) sender.fragment(event, bytes_of(10, event));
    peer.send(sender.bytes());
    const EventNumber end = *(events.end() - 1) + 1;
    bench.read_until([&] { return bench.fixture.queue.next_event() == end; });
  };
  const auto& queue = bench.fixture.queue;
  send({0});
  (void)bench.fixture.queue.give_up_until(4);
  bench.source->announced(4);
  send({0, 1, 3, 4});
  EXPECT_EQ(queue.dropped(wire::DropReason::late), 2U) << "0 was read before";
  bench.source->announced(5);
  send({0, 1, 3, 4, 5});
  EXPECT_EQ(queue.dropped(wire::DropReason::late), 2U);
  EXPECT_EQ(queue.dropped(wire::DropReason::number_back), 0U);
  EXPECT_EQ(queue.written(), 3U);
}

// With an offset of -1000 the number 1000 is the first that may be an event.
TEST(ReceiveSource, a_sender_that_is_there_before_the_run_begins_keeps_its_connection) {
  Bench bench(1024, 64, {.wait_for_sender = true}, false);
  EXPECT_FALSE(bench.source->ready(Time{}));
  const Peer peer(*bench.source);
  SenderBytes sender(5);
  peer.send(sender.preface_of(3, 77).fragment(1000, bytes_of(10, 0)).bytes());
  while (!bench.source->ready(Time{})) {
  }
  ASSERT_TRUE(bench.source->start(1000, Time{}));
  bench.read_until([&] { return bench.fixture.queue.held() == 1000U; });
  EXPECT_FALSE(peer.closed());
  EXPECT_EQ(bench.counter("connections"), 1U);
}

TEST(ReceiveSource, a_sender_that_never_comes_back_keeps_its_connection_in_a_rejoin) {
  Bench bench;
  bench.fixture.queue.start(0);
  const Peer peer(*bench.source);
  SenderBytes sender(5);
  peer.send(sender.preface_of(3, 0).fragment(0, bytes_of(10, 0)).bytes());
  bench.read_until([&] { return bench.fixture.queue.next_event() == 1; });
  bench.fixture.queue.start(6);
  ASSERT_TRUE(bench.source->start(6, Time{}));
  SenderBytes more(5);
  peer.send(more.fragment(5, bytes_of(10, 5)).fragment(6, bytes_of(10, 6)).bytes());
  bench.read_until([&] { return bench.fixture.queue.next_event() == 7; });
  EXPECT_FALSE(peer.closed());
  EXPECT_EQ(bench.counter("sent_again"), 1U) << "5 is below what is wanted";
}

TEST(ReceiveSource, what_goes_back_below_what_is_announced_is_counted) {
  Bench bench;
  bench.fixture.queue.start(0);
  const Peer peer(*bench.source);
  SenderBytes sender(5);
  sender.preface_of(3, 77);
  for (const EventNumber event : {0U, 1U, 2U, 6U, 7U, 8U, 9U}) {
    sender.fragment(event, bytes_of(10, event));
  }
  peer.send(sender.bytes());
  bench.read_until([&] { return bench.fixture.queue.next_event() == 10; });
  bench.source->announced(10);
  SenderBytes more(5);
  for (const EventNumber event : {3U, 4U, 5U, 10U}) more.fragment(event, bytes_of(10, event));
  peer.send(more.bytes());
  bench.read_until([&] { return bench.fixture.queue.next_event() == 11; });
  EXPECT_EQ(bench.fixture.queue.dropped(wire::DropReason::number_back), 3U);
}

// The wrong number says nothing about what the source has come to.
TEST(ReceiveSource, what_is_late_behind_a_wrong_number_is_counted) {
  Bench bench;
  bench.fixture.queue.start(0);
  for (const bool again : {false, true}) {
    const Peer peer(*bench.source);
    SenderBytes sender(5);
    sender.preface_of(3, 77);
    const EventNumber first = again ? 12 : 0;
    for (const EventNumber event : {first, first + 1, EventNumber{1} << 40, first + 2}) {
      sender.fragment(event, bytes_of(10, event));
    }
    peer.send(sender.bytes());
    bench.read_until([&] { return bench.fixture.queue.next_event() == first + 3; });
    (void)bench.fixture.queue.give_up_until(first + 8);
    bench.source->announced(first + 8);
    SenderBytes late(5);
    for (EventNumber event = first + 3; event < first + 9; ++event) {
      late.fragment(event, bytes_of(10, event));
    }
    peer.send(late.bytes());
    bench.read_until([&] { return bench.fixture.queue.next_event() == first + 9; });
    EXPECT_EQ(bench.fixture.queue.dropped(wire::DropReason::late), again ? 10U : 5U);
  }
}

TEST(ReceiveSource, a_rejoin_makes_version_3_send_again_what_was_not_announced) {
  Bench bench;
  bench.fixture.queue.start(0);
  const Peer peer(*bench.source);
  SenderBytes sender(5);
  sender.preface_of(3, 77);
  for (EventNumber event = 0; event < 8; ++event) sender.fragment(event, bytes_of(10, event));
  peer.send(sender.bytes());
  bench.read_until([&] { return bench.fixture.queue.next_event() == 8; });
  bench.source->announced(4);
  bench.fixture.queue.start(6);
  ASSERT_TRUE(bench.source->start(6, Time{}));
  (void)bench.source->read(bench.fixture.queue, Time{});
  EXPECT_EQ(answer_of(peer).has_last, 0);
  EXPECT_THAT(acknowledged(peer), ::testing::ElementsAre(4));
  EXPECT_TRUE(peer.closed());

  const Peer back(*bench.source);
  SenderBytes rest(5);
  rest.preface_of(3, 77);
  for (EventNumber event = 4; event < 9; ++event) rest.fragment(event, bytes_of(10, event));
  back.send(rest.bytes());
  bench.read_until([&] { return bench.fixture.queue.next_event() == 9; });
  EXPECT_EQ(answer_of(back).has_last, 0) << "what was read before is forgotten";
  EXPECT_THAT(acknowledged(back), ::testing::ElementsAre(6));
  EXPECT_EQ(bench.fixture.queue.dropped(wire::DropReason::late), 0U);
}

#ifdef FANIN_PYTHON
// It has sent nothing over the connection, since it was told that all had been read.
TEST(ReceiveSource, a_rejoin_makes_version_3_send_again_also_where_it_had_nothing_left_to_send) {
  Bench bench;
  bench.fixture.queue.start(0);
  Peer peer(*bench.source);
  SenderBytes sender(5);
  peer.send(sender.preface_of(3, 77).fragment(0, bytes_of(10, 0)).bytes());
  bench.read_until([&] { return bench.fixture.queue.next_event() == 1; });
  peer.close();
  const Peer idle(*bench.source);
  idle.send(SenderBytes(5).preface_of(3, 77).bytes());
  bench.read_until([&] { return idle.available() >= sizeof(ReceiveAnswer); });
  EXPECT_EQ(answer_of(idle).has_last, 1);
  bench.fixture.queue.start(0);
  ASSERT_TRUE(bench.source->start(0, Time{}));
  (void)bench.source->read(bench.fixture.queue, Time{});
  EXPECT_TRUE(idle.closed());
}

TEST(ReceiveSource, the_python_example_speaks_the_format) {
  for (const char* option : {"--first=0", "--no-crc", "--acknowledged"}) {
    Bench bench;
    const std::string url = bench.source->listening_url();
    const std::string script =
        std::string(FANIN_SOURCE_DIR) + "/examples/receive/send_fragments.py";
    std::vector<const char*> arguments{FANIN_PYTHON, script.c_str(), url.c_str(), "--source=0x5"};
    arguments.insert(arguments.end(), {"--events=20", "--size=3001", option, nullptr});
    pid_t child = 0;
    ASSERT_EQ(posix_spawn(&child, FANIN_PYTHON, nullptr, nullptr,
                          const_cast<char* const*>(arguments.data()), environ),
              0);
    bench.read_until([&] {
      const FragmentQueue& queue = bench.fixture.queue;
      if (queue.numbered()) bench.source->announced(queue.next_event());
      return bench.last.state == ReadState::finished;
    });
    int status = 1;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
    EXPECT_EQ(bench.fixture.queue.written(), 20U);
    EXPECT_EQ(bench.counter("bad_checksum"), 0U);
    Bytes expected(3001);
    for (std::size_t i = 0; i < expected.size(); i += 8) expected[i] = std::byte{19};
    EXPECT_EQ(payload_of(bench.fixture.queue, 19), expected);
  }
}
#endif

TEST(ReceiveSource, a_sender_that_the_kernel_cannot_watch_is_refused_and_the_next_is_read) {
  Bench bench;
  const Peer peer(*bench.source);
  {
    const FailingCalls watches(FailingCalls::Kind::watch, ENOSPC);
    bench.read_until([&] { return bench.counter("refused") == 1; });
  }
  EXPECT_TRUE(peer.closed());
  EXPECT_THAT(bench.log, ::testing::Contains(::testing::HasSubstr("No space left on device")));
  send_spill(*bench.source, 0, 3);
  bench.read_until([&] { return bench.fixture.queue.next_event() == 3; });
}

TEST(ReceiveSource, a_listener_that_the_kernel_cannot_watch_is_an_error) {
  const auto source = ReceiveSource::make({.source = 6, .port = new_port()}).value();
  {
    const FailingCalls watches(FailingCalls::Kind::watch, ENOSPC);
    const auto started = source->start(0, Time{});
    ASSERT_FALSE(started);
    EXPECT_THAT(started.error().text, ::testing::HasSubstr("No space left on device"));
  }
  EXPECT_TRUE(source->start(0, Time{}));
}

TEST(ReceiveSource, a_port_in_use_is_a_clear_error) {
  const Bench bench;
  const std::string url = bench.source->listening_url();
  const auto second = ReceiveSource::make({.source = 6, .port = new_port(url.c_str())}).value();
  const auto started = second->start(0, Time{});
  ASSERT_FALSE(started);
  EXPECT_EQ(started.error().kind, ErrorKind::refused);
  EXPECT_THAT(started.error().text, ::testing::HasSubstr(url));
}

} // namespace
} // namespace fanin::source
