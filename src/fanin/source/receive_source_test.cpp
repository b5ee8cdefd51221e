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
  struct : net::TcpStreams {
    Result<std::vector<net::Address>> addresses_to_listen(const net::Url& url) override {
      ++asked;
      if (!known) return fail(ErrorKind::not_found, url.text() + ": unknown");
      return net::addresses_of_number("127.0.0.1").value();
    }
    int asked = 0;
    bool known = false;
  } streams;
  const auto source =
      ReceiveSource::make(
          {.source = 5,
           .port = ReceivePort::make(net::Url::parse("tcp://readout-1:0").value(), streams).value(),
           .listen_from = "run.toml:12: listen"})
          .value();
  EXPECT_EQ(source->prepare().error().text, "run.toml:12: listen: tcp://readout-1: unknown");
  streams.known = true;
  ASSERT_TRUE(source->prepare());
  EXPECT_EQ(streams.asked, 2);
  for (int i = 0; i < 2; ++i) ASSERT_TRUE(source->start(0, Time{}));
  EXPECT_EQ(streams.asked, 2);
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
  ASSERT_EQ(bench.fixture.queue.numbers().written(), 300U);
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
    return bench.fixture.queue.numbers().written() == 4;
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
  EXPECT_EQ(queue.numbers().written(), 16U);
  while (queue.numbers().written() < count) {
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
  EXPECT_EQ(bench.fixture.queue.numbers().written(), 3U);
  EXPECT_EQ(payload_of(bench.fixture.queue, 2), bytes_of(10, 2));
  EXPECT_EQ(bench.counter("connections"), 4U);
}

TEST(ReceiveSource, bytes_after_the_end_are_counted_and_said_and_the_sender_sees_a_reset) {
  Bench bench;
  const Peer peer(*bench.source);
  SenderBytes sender(5);
  peer.send(sender.preface().fragment(0, {}).end().fragment(1, bytes_of(10, 1)).bytes());
  bench.read_until([&] { return bench.last.state == ReadState::finished; });
  EXPECT_EQ(bench.counter("after_end"), 1U);
  EXPECT_EQ(bench.log.back(), peer.address() + " disconnected: after_end: bytes follow its end of "
                                               "the data, and are not read (34 bytes or more)");
  Bytes room(1);
  EXPECT_EQ(peer.receive(room), -ECONNRESET);
}

TEST(ReceiveSource, a_sender_of_another_source_is_named_with_the_sources_that_are_known) {
  Bench bench;
  const Peer stray(*bench.source);
  stray.send(SenderBytes(9).preface().bytes());
  bench.read_until([&] { return bench.counter("other_source") == 1; });
  EXPECT_EQ(bench.log.back(), stray.address() + " disconnected: other_source: it has data of "
                                                "another source (of 0x9; at this address: 0x5)");
  const Peer changed(*bench.source);
  changed.send(SenderBytes(5).preface().bytes());
  changed.send(SenderBytes(9).fragment(0, {}).bytes());
  bench.read_until([&] { return bench.counter("other_source") == 2; });
  EXPECT_EQ(bench.log.back(), changed.address() +
                                  " disconnected: other_source: it has data of another source (of "
                                  "0x9; its preface said 0x5)");
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
  bench.read_until([&] { return bench.fixture.queue.numbers().written() == 2; });
}

TEST(ReceiveSource, a_sender_that_pauses_is_not_waited_for_until_it_sends_again) {
  Bench bench;
  SenderBytes sender(5);
  {
    Peer first(*bench.source);
    first.send(sender.preface().fragment(0, {}).fragment(1, {}).pause().bytes());
    bench.read_until([&] { return bench.last.state == ReadState::paused; });
    EXPECT_EQ(bench.fixture.queue.numbers().written(), 2U);
  }
  bench.read_until([&] { return bench.log.back().ends_with("closed by the sender"); });
  EXPECT_EQ(bench.last.state, ReadState::paused);
  sender.bytes().clear();
  Peer second(*bench.source);
  second.send(sender.preface().fragment(2, {}).bytes());
  bench.read_until([&] { return bench.fixture.queue.numbers().written() == 3; });
  EXPECT_EQ(bench.last.state, ReadState::waiting);
}

TEST(ReceiveSource, connections_that_were_closed_before_any_was_read_are_all_read) {
  Bench bench;
  for (EventNumber spill = 0; spill < 20; ++spill) {
    send_spill(*bench.source, spill * 30, spill * 30 + 30);
  }
  bench.read_until([&] { return bench.fixture.queue.next_event() == 600; });
  EXPECT_EQ(bench.fixture.queue.numbers().written(), 600U);
  EXPECT_EQ(bench.counter("connections"), 20U);
  EXPECT_EQ(bench.counter("refused"), 0U);
}

TEST(ReceiveSource, a_connection_that_comes_before_the_end_of_the_first_is_read_waits) {
  Bench bench;
  bench.fixture.queue.start(0);
  SenderBytes sender(5);
  Peer first(*bench.source);
  first.send(sender.preface().fragment(0, bytes_of(10, 0)).bytes());
  bench.read_until([&] { return bench.fixture.queue.numbers().written() == 1; });
  sender.bytes().clear();
  first.send(sender.fragment(1, bytes_of(10, 1)).bytes());
  first.close();
  send_spill(*bench.source, 2, 4);
  bench.read_until([&] { return bench.fixture.queue.numbers().written() == 4; });
  EXPECT_EQ(bench.counter("refused"), 0U);
}

TEST(ReceiveSource, connections_that_come_while_the_queue_is_full_are_read_later) {
  Bench bench(16);
  FragmentQueue& queue = bench.fixture.queue;
  for (EventNumber spill = 0; spill < 40; ++spill) {
    send_spill(*bench.source, spill * 10, spill * 10 + 10, 3000);
    ASSERT_EQ(bench.source->read(queue, bench.now).state, ReadState::waiting);
  }
  EXPECT_EQ(queue.numbers().written(), 16U);
  bench.read_until([&] {
    queue.release_until(queue.next_event());
    return queue.numbers().written() == 400;
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
  bench.read_until([&] { return bench.fixture.queue.numbers().written() == 1; });
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
  bench.read_until([&] { return bench.fixture.queue.numbers().written() == 3; });
  EXPECT_EQ(bench.counter("refused"), 0U);
}

// The same front end, started twice.
TEST(ReceiveSource, a_second_sender_that_waits_is_named_once_also_while_the_first_one_sends) {
  Bench bench;
  bench.fixture.queue.start(0);
  const Peer first(*bench.source);
  first.send(SenderBytes(5).preface().bytes());
  const Peer second(*bench.source);
  second.send(SenderBytes(5).preface().fragment(0, bytes_of(10, 0)).bytes());
  for (EventNumber event = 0; event < 30; ++event) {
    first.send(SenderBytes(5).fragment(event, bytes_of(10, event)).bytes());
    bench.read_until([&] { return bench.fixture.queue.next_event() == event + 1; });
    bench.now += std::chrono::milliseconds{100};
  }
  const std::string line = second.address() +
                           " is another sender of this source, and waits until " + first.address() +
                           " has closed its connection: one sends at a time";
  EXPECT_THAT(bench.log, ::testing::Contains(line).Times(1));
}

// Its numbers are lower, so that it could not send them any more.
TEST(ReceiveSource, who_has_to_send_again_has_its_turn_before_those_who_wait) {
  for (const bool comes_back : {true, false}) {
    Bench bench;
    FragmentQueue& queue = bench.fixture.queue;
    queue.start(0);
    SenderBytes sender(5);
    sender.preface(7).fragment(0, bytes_of(10, 0)).fragment(1, bytes_of(10, 1));
    sender.bytes().back() ^= std::byte{1};
    Peer first(*bench.source);
    first.send(sender.bytes());
    SenderBytes other(5);
    other.preface(8).fragment(3, bytes_of(10, 3)).fragment(4, bytes_of(10, 4));
    Peer second(*bench.source);
    second.send(other.bytes());
    bench.read_until([&] { return bench.counter("damaged") == 1; });
    bench.last = bench.source->read(queue, bench.now);
    EXPECT_EQ(bench.last.wake, bench.now + std::chrono::milliseconds{500});
    EXPECT_EQ(queue.next_event(), 1U);
    if (comes_back) {
      SenderBytes again(5);
      again.preface(7).fragment(1, bytes_of(10, 1)).fragment(2, bytes_of(10, 2));
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
  EXPECT_EQ(queue.numbers().written(), count);
}

// It has nothing more to send, unless what follows the pause was damaged.
TEST(ReceiveSource, a_sender_that_pauses_keeps_its_place_only_if_something_follows) {
  for (const bool follows : {false, true}) {
    Bench bench;
    bench.fixture.queue.start(0);
    Peer first(*bench.source);
    first.send(SenderBytes(5).preface(7).fragment(0, bytes_of(10, 0)).pause().bytes());
    Peer second(*bench.source);
    second.send(SenderBytes(5).preface().fragment(1, bytes_of(10, 1)).bytes());
    bench.read_until([&] { return bench.fixture.queue.next_event() == 1; });
    if (follows) {
      first.send(Bytes(32));
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
      faulty.send(SenderBytes(5).preface(7).bytes());
      faulty.send(Bytes(32));
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

// Else the readout unit would take it for busy, and never for silent.
TEST(ReceiveSource, a_sender_that_drips_into_a_large_fragment_has_no_more_for_now) {
  Bench bench;
  Peer peer(*bench.source);
  SenderBytes sender(5);
  sender.preface().fragment(0, bytes_of(900'000, 0));
  peer.send(Bytes(sender.bytes().begin(), sender.bytes().begin() + 100));
  bench.read_until([&] { return bench.fixture.queue.open(); });
  for (std::ptrdiff_t at = 100; at < 120; ++at) {
    peer.send(Bytes(sender.bytes().begin() + at, sender.bytes().begin() + at + 1));
    const std::uint32_t missing = bench.fixture.queue.missing();
    bench.read_until([&] { return bench.fixture.queue.missing() < missing; });
    EXPECT_EQ(bench.last.state, ReadState::waiting);
  }
}

TEST(ReceiveSource, a_connection_without_a_preface_keeps_nobody_waiting) {
  Bench bench;
  bench.fixture.queue.start(0);
  const Peer silent(*bench.source);
  Peer dripping(*bench.source);
  dripping.send(Bytes(1, std::byte{'F'}));
  send_spill(*bench.source, 0, 1);
  bench.read_until([&] { return bench.fixture.queue.numbers().written() == 1; });
  EXPECT_FALSE(silent.closed()) << "its preface may be under way";
  SenderBytes sender(5);
  sender.preface().fragment(1, bytes_of(10, 1));
  dripping.send(Bytes(sender.bytes().begin() + 1, sender.bytes().end()));
  bench.read_until([&] { return bench.fixture.queue.numbers().written() == 2; });
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
  bench.read_until([&] { return bench.fixture.queue.numbers().written() == 1; });
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
  bench.read_until([&] { return bench.fixture.queue.numbers().written() == 1; });
  constexpr EventNumber count = ReceivePort::waiting_max + 100;
  for (EventNumber event = 1; event <= count; ++event) send_spill(*bench.source, event, event + 1);
  do {
    bench.last = bench.source->read(bench.fixture.queue, bench.now);
  } while (bench.last.state == ReadState::more);
  EXPECT_EQ(bench.fixture.queue.numbers().written(), 1U);
  first.close();
  bench.read_until([&] {
    bench.fixture.queue.release_until(bench.fixture.queue.next_event());
    return bench.fixture.queue.numbers().written() == count + 1;
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
  EXPECT_EQ(bench.fixture.queue.numbers().dropped(wire::DropReason::late), 1U);
}

// What has come over `peer` from the source.
std::vector<ReceiveReply> replies(const Peer& peer) {
  constexpr std::size_t size = sizeof(CheckedBytes<ReceiveReply>);
  std::vector<ReceiveReply> result;
  while (peer.available() >= size) {
    const Bytes bytes = peer.received(size);
    EXPECT_TRUE(own_checksum_fits(bytes));
    ReceiveReply& reply = result.emplace_back();
    std::memcpy(&reply, bytes.data(), sizeof reply);
    EXPECT_EQ(reply.mark, receive_mark);
    EXPECT_EQ(reply.source, 5U);
  }
  return result;
}
std::vector<std::uint64_t> ends(const std::vector<ReceiveReply>& replies) {
  std::vector<std::uint64_t> result;
  for (const ReceiveReply& reply : replies) result.push_back(reply.end);
  return result;
}
// The answer, and acknowledgements after it.
std::vector<std::uint64_t> answered(const Peer& peer) {
  const auto all = replies(peer);
  for (std::size_t i = 0; i < all.size(); ++i) {
    EXPECT_EQ(all[i].kind, i == 0 ? ReceiveKind::answer : ReceiveKind::announced);
  }
  return ends(all);
}

TEST(ReceiveSource, a_reliable_sender_is_told_what_is_announced_and_again_when_it_comes_back) {
  Bench bench;
  bench.fixture.queue.start(0);
  Peer peer(*bench.source);
  SenderBytes sender(5);
  sender.preface(77);
  for (EventNumber event = 0; event < 8; ++event) sender.fragment(event, bytes_of(10, event));
  peer.send(sender.bytes());
  bench.read_until([&] { return bench.fixture.queue.next_event() == 8; });
  EXPECT_THAT(answered(peer), ::testing::ElementsAre(0));
  for (const EventNumber end : {3U, 3U, 6U}) bench.announce(end);
  EXPECT_THAT(ends(replies(peer)), ::testing::ElementsAre(3, 6));

  const Peer again(*bench.source);
  SenderBytes more(5);
  again.send(more.preface(77).fragment(8, bytes_of(10, 8)).bytes());
  bench.read_until([&] { return bench.fixture.queue.next_event() == 9; });
  EXPECT_THAT(answered(again), ::testing::ElementsAre(8, 6));
}

// What is acknowledged need not be built.
TEST(ReceiveSource, a_reliable_sender_is_told_how_many_of_its_fragments_were_dropped_or_late) {
  Bench bench;
  FragmentQueue& queue = bench.fixture.queue;
  queue.start(0);
  {
    const Peer other(*bench.source);
    SenderBytes sender(5);
    other.send(sender.preface(9).fragment(0, {}).fragment(0, {}).bytes());
    bench.read_until([&] { return queue.numbers().dropped(wire::DropReason::number_repeat) == 1; });
    EXPECT_EQ(replies(other).back().dropped, 1U);
  }
  const auto send = [&](std::initializer_list<EventNumber> events) {
    Peer peer(*bench.source);
    SenderBytes sender(5);
    sender.preface(77);
    for (const EventNumber event : events) sender.fragment(event, {});
    peer.send(sender.bytes());
    bench.read_until([&] { return queue.next_event() == *(events.end() - 1) + 1; });
    return peer;
  };
  const Peer first = send({1, 1, 2});
  bench.announce(3);
  const auto told = replies(first);
  EXPECT_EQ(told.front().dropped, 0U) << "that was another sender";
  EXPECT_EQ(told.back().end, 3U);
  EXPECT_EQ(told.back().dropped, 1U);
  (void)queue.give_up_until(5);
  bench.announce(5);
  const Peer second = send({3, 4, 5});
  const auto told_later = replies(second);
  EXPECT_EQ(told_later.front().dropped, 1U);
  EXPECT_EQ(told_later.back().end, 5U);
  EXPECT_EQ(told_later.back().dropped, 3U) << "two came too late";
}

// The numbers are those of all that it has sent.
TEST(ReceiveSource, a_sender_that_ends_its_data_is_told_the_last_numbers_before_the_close) {
  Bench bench;
  bench.fixture.queue.start(0);
  const Peer peer(*bench.source);
  SenderBytes sender(5);
  peer.send(sender.preface(77).fragment(0, {}).fragment(0, {}).end().bytes());
  bench.read_until([&] { return bench.last.state == ReadState::finished; });
  EXPECT_EQ(replies(peer).back().dropped, 1U);
  EXPECT_TRUE(peer.closed());
}

// A number that is damaged does not count, and the sender is told so.
TEST(ReceiveSource, a_damaged_header_ends_the_connection_of_a_reliable_sender) {
  Bench bench;
  bench.fixture.queue.start(0);
  const Peer peer(*bench.source);
  SenderBytes sender(5);
  sender.preface(77).fragment(0, bytes_of(10, 0));
  const std::size_t header = sender.bytes().size();
  sender.fragment(1, bytes_of(10, 1)).bytes()[header + 9] ^= std::byte{1};
  peer.send(sender.bytes());
  bench.read_until([&] { return bench.counter("damaged") == 1; });
  (void)replies(peer);
  EXPECT_TRUE(peer.closed());
  EXPECT_EQ(bench.fixture.queue.numbers().held(), std::nullopt);
}

TEST(ReceiveSource, each_connection_has_its_own_form) {
  Bench bench;
  bench.fixture.queue.start(0);
  EventNumber event = 0;
  for (const bool reliable : {true, false, true}) {
    const Peer peer(*bench.source);
    SenderBytes sender(5);
    reliable ? sender.preface(10 + event) : sender.preface();
    peer.send(sender.fragment(event, bytes_of(10, event)).bytes());
    ++event;
    bench.read_until([&] { return bench.fixture.queue.next_event() == event; });
    bench.announce(event);
    // The answer, the latest acknowledgement if there is one, and a new one.
    EXPECT_EQ(replies(peer).size(), !reliable ? 0U : event == 1 ? 2U : 3U);
  }
}

// Its front end was wrong, or will go on from there.
TEST(ReceiveSource, a_reliable_sender_is_not_told_a_number_that_may_be_wrong) {
  Bench bench;
  bench.fixture.queue.start(0);
  const Peer peer(*bench.source);
  SenderBytes sender(5);
  sender.preface(77);
  for (EventNumber event = 0; event < 8; ++event) sender.fragment(event, bytes_of(10, event));
  sender.fragment(8 << 8, bytes_of(10, 8)).bytes().resize(sender.bytes().size() + 32);
  peer.send(sender.bytes());
  bench.read_until([&] { return bench.counter("bad_mark") == 1; });

  const Peer again(*bench.source);
  SenderBytes rest(5);
  rest.preface(77);
  for (EventNumber event = 8; event < 12; ++event) rest.fragment(event, bytes_of(10, event));
  again.send(rest.bytes());
  bench.read_until([&] { return bench.fixture.queue.next_event() == 12; });
  EXPECT_THAT(answered(again), ::testing::ElementsAre(8, 0)) << "then it was dropped";
  EXPECT_EQ(bench.fixture.queue.numbers().written(), 12U);
}

// A sender that has said its end and waits for the close must not take it for success.
TEST(ReceiveSource, a_connection_that_ends_for_a_fault_is_reset) {
  for (const bool fault : {false, true}) {
    Bench bench;
    bench.fixture.queue.start(0);
    const Peer peer(*bench.source);
    SenderBytes sender(5);
    sender.preface(77).fragment(0, bytes_of(10, 0));
    if (fault) sender.bytes().resize(sender.bytes().size() + 32);
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
  sender.preface(77).fragment(0, bytes_of(10, 0));
  ReceiveHeader header = sender.plain(1);
  header.size = 4000;
  sender.header(header).fragment(2, bytes_of(10, 2)).fragment(3, bytes_of(10, 3));
  peer.send(sender.bytes());
  bench.read_until([&] { return bench.fixture.queue.open(); });
  (void)bench.source->read(bench.fixture.queue, Time{}); // there is no more
  const Time now = Time{} + std::chrono::milliseconds{999};
  EXPECT_GT(bench.source->read(bench.fixture.queue, now).wake, now);
  EXPECT_THAT(answered(peer), ::testing::ElementsAre(0));
  EXPECT_FALSE(peer.closed());
  (void)bench.source->read(bench.fixture.queue, Time{} + std::chrono::seconds{1});
  EXPECT_TRUE(peer.closed());
  EXPECT_EQ(bench.counter("cut_short"), 1U);
  const Peer again(*bench.source);
  SenderBytes rest(5);
  rest.preface(77);
  for (EventNumber event = 1; event < 4; ++event) rest.fragment(event, bytes_of(10, event));
  again.send(rest.bytes());
  bench.read_until([&] { return bench.fixture.queue.next_event() == 4; });
  EXPECT_THAT(answered(again), ::testing::ElementsAre(1));
  EXPECT_EQ(bench.fixture.queue.numbers().written(), 4U);
}

TEST(ReceiveSource, what_a_plain_sender_repeats_is_dropped_although_it_is_announced) {
  Bench bench;
  bench.fixture.queue.start(0);
  const Peer peer(*bench.source);
  peer.send(SenderBytes(5).preface().fragment(0, bytes_of(10, 0)).bytes());
  bench.read_until([&] { return bench.fixture.queue.next_event() == 1; });
  bench.announce(1);
  peer.send(SenderBytes(5).fragment(0, bytes_of(10, 0)).fragment(1, bytes_of(10, 1)).bytes());
  bench.read_until([&] { return bench.fixture.queue.next_event() == 2; });
  EXPECT_EQ(bench.fixture.queue.numbers().dropped(wire::DropReason::number_repeat), 1U);
  EXPECT_EQ(peer.available(), 0U);
}

// All its data are equal. A program with the same number, or without one, may repeat what was lost.
TEST(ReceiveSource, a_sender_with_another_number_that_goes_back_was_restarted) {
  for (const std::uint64_t number : {0U, 77U, 78U}) {
    Bench bench;
    bench.fixture.queue.start(0);
    const auto send = [&](std::uint64_t sender, EventNumber first, EventNumber end) {
      const Peer peer(*bench.source);
      SenderBytes bytes(5);
      sender == 0 ? bytes.preface() : bytes.preface(sender);
      for (; first < end; ++first) bytes.fragment(first, bytes_of(10, first));
      peer.send(bytes.pause().bytes());
      bench.read_until([&] { return bench.fixture.queue.next_event() == end; });
    };
    send(number == 0 ? 0 : 77, 0, 10);
    send(number, 8, 12);
    EXPECT_EQ(bench.fixture.queue.numbers().in_doubt(), number == 78U);
    EXPECT_EQ(bench.fixture.queue.numbers().dropped(wire::DropReason::number_repeat), 2U);
  }
}

TEST(ReceiveSource, what_is_announced_and_comes_again_is_not_counted) {
  Bench bench;
  bench.fixture.queue.start(0);
  {
    const Peer peer(*bench.source);
    SenderBytes sender(5);
    sender.preface(77);
    for (EventNumber event = 0; event < 4; ++event) {
      sender.fragment(event, bytes_of(event < 3 ? 900 : 10, event));
    }
    peer.send(sender.bytes());
    bench.read_until([&] { return bench.fixture.queue.next_event() == 4; });
  }
  bench.source->announced(3);
  const Peer peer(*bench.source);
  SenderBytes again(5);
  again.preface(77);
  for (EventNumber event = 0; event < 3; ++event) again.fragment(event, bytes_of(900, event));
  peer.send(again.skip_to(1).fragment(3, bytes_of(10, 3)).fragment(4, bytes_of(10, 4)).bytes());
  bench.read_until([&] { return bench.fixture.queue.next_event() == 5; });
  EXPECT_EQ(bench.fixture.queue.numbers().written(), 5U);
  EXPECT_EQ(bench.fixture.queue.numbers().dropped(wire::DropReason::number_back), 0U);
  EXPECT_EQ(bench.fixture.queue.numbers().dropped(wire::DropReason::number_repeat), 1U)
      << "3 was not";
  EXPECT_EQ(payload_of(bench.fixture.queue, 4), bytes_of(10, 4));
}

// It was not waited for any longer, and others were announced meanwhile.
TEST(ReceiveSource, what_comes_first_when_it_is_announced_is_late) {
  Bench bench;
  bench.fixture.queue.start(0);
  const auto send = [&bench](std::initializer_list<EventNumber> events) {
    const Peer peer(*bench.source);
    SenderBytes sender(5);
    sender.preface(77);
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
  EXPECT_EQ(queue.numbers().dropped(wire::DropReason::late), 2U) << "0 was read before";
  bench.source->announced(5);
  send({0, 1, 3, 4, 5});
  EXPECT_EQ(queue.numbers().dropped(wire::DropReason::late), 2U);
  EXPECT_EQ(queue.numbers().dropped(wire::DropReason::number_back), 0U);
  EXPECT_EQ(queue.numbers().written(), 3U);
}

// With an offset of -1000 the number 1000 is the first that may be an event.
TEST(ReceiveSource, a_sender_that_is_there_before_the_run_begins_keeps_its_connection) {
  Bench bench(1024, 64, {.wait_for_sender = true}, false);
  EXPECT_FALSE(bench.source->ready(Time{}));
  const Peer peer(*bench.source);
  SenderBytes sender(5);
  peer.send(sender.preface(77).fragment(1000, bytes_of(10, 0)).bytes());
  while (!bench.source->ready(Time{})) {
  }
  ASSERT_TRUE(bench.source->start(1000, Time{}));
  bench.read_until([&] { return bench.fixture.queue.numbers().held() == 1000U; });
  EXPECT_FALSE(peer.closed());
  EXPECT_EQ(bench.counter("connections"), 1U);
}

TEST(ReceiveSource, what_goes_back_below_what_is_announced_is_counted) {
  Bench bench;
  bench.fixture.queue.start(0);
  const Peer peer(*bench.source);
  SenderBytes sender(5);
  sender.preface(77);
  for (const EventNumber event : {0U, 1U, 2U, 6U, 7U, 8U, 9U}) {
    sender.fragment(event, bytes_of(10, event));
  }
  peer.send(sender.bytes());
  bench.read_until([&] { return bench.fixture.queue.next_event() == 10; });
  bench.source->announced(10);
  SenderBytes more(5);
  more.reliable();
  for (const EventNumber event : {3U, 4U, 5U, 10U}) more.fragment(event, bytes_of(10, event));
  peer.send(more.bytes());
  bench.read_until([&] { return bench.fixture.queue.next_event() == 11; });
  EXPECT_EQ(bench.fixture.queue.numbers().dropped(wire::DropReason::number_back), 3U);
}

// The wrong number says nothing about what the source has come to.
TEST(ReceiveSource, what_is_late_behind_a_wrong_number_is_counted) {
  Bench bench;
  bench.fixture.queue.start(0);
  for (const bool again : {false, true}) {
    const Peer peer(*bench.source);
    SenderBytes sender(5);
    sender.preface(77);
    const EventNumber first = again ? 12 : 0;
    for (const EventNumber event : {first, first + 1, EventNumber{1} << 40, first + 2}) {
      sender.fragment(event, bytes_of(10, event));
    }
    peer.send(sender.bytes());
    bench.read_until([&] { return bench.fixture.queue.next_event() == first + 3; });
    (void)bench.fixture.queue.give_up_until(first + 8);
    bench.source->announced(first + 8);
    SenderBytes late(5);
    late.reliable();
    for (EventNumber event = first + 3; event < first + 9; ++event) {
      late.fragment(event, bytes_of(10, event));
    }
    peer.send(late.bytes());
    bench.read_until([&] { return bench.fixture.queue.next_event() == first + 9; });
    EXPECT_EQ(bench.fixture.queue.numbers().dropped(wire::DropReason::late), again ? 10U : 5U);
  }
}

TEST(ReceiveSource, a_rejoin_makes_a_reliable_sender_send_again_what_was_not_announced) {
  Bench bench;
  bench.fixture.queue.start(0);
  const Peer peer(*bench.source);
  SenderBytes sender(5);
  sender.preface(77);
  for (EventNumber event = 0; event < 8; ++event) sender.fragment(event, bytes_of(10, event));
  peer.send(sender.bytes());
  bench.read_until([&] { return bench.fixture.queue.next_event() == 8; });
  bench.announce(4);
  bench.fixture.queue.start(6);
  ASSERT_TRUE(bench.source->start(6, Time{}));
  (void)bench.source->read(bench.fixture.queue, Time{});
  EXPECT_THAT(answered(peer), ::testing::ElementsAre(0, 4));
  EXPECT_TRUE(peer.closed());

  const Peer back(*bench.source);
  SenderBytes rest(5);
  rest.preface(77);
  for (EventNumber event = 4; event < 9; ++event) rest.fragment(event, bytes_of(10, event));
  back.send(rest.bytes());
  bench.read_until([&] { return bench.fixture.queue.next_event() == 9; });
  EXPECT_THAT(answered(back), ::testing::ElementsAre(0, 6)) << "what was read is forgotten";
  EXPECT_EQ(bench.fixture.queue.numbers().dropped(wire::DropReason::late), 0U);
}

#ifdef FANIN_PYTHON
// It has sent nothing over the connection, since it was told that all had been read.
TEST(ReceiveSource,
     a_rejoin_makes_a_reliable_sender_send_again_also_where_it_had_nothing_left_to_send) {
  Bench bench;
  bench.fixture.queue.start(0);
  Peer peer(*bench.source);
  SenderBytes sender(5);
  peer.send(sender.preface(77).fragment(0, bytes_of(10, 0)).bytes());
  bench.read_until([&] { return bench.fixture.queue.next_event() == 1; });
  peer.close();
  const Peer idle(*bench.source);
  idle.send(SenderBytes(5).preface(77).bytes());
  bench.read_until([&] { return idle.available() != 0; });
  EXPECT_THAT(answered(idle), ::testing::ElementsAre(1));
  bench.fixture.queue.start(0);
  ASSERT_TRUE(bench.source->start(0, Time{}));
  (void)bench.source->read(bench.fixture.queue, Time{});
  EXPECT_TRUE(idle.closed());
}

TEST(ReceiveSource, the_python_example_speaks_the_format) {
  for (const char* option : {"--first=0", "--no-crc", "--plain"}) {
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
      if (queue.numbered()) bench.announce(queue.next_event());
      return bench.last.state == ReadState::finished;
    });
    int status = 1;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
    EXPECT_EQ(bench.fixture.queue.numbers().written(), 20U);
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
