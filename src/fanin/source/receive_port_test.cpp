// Several sources at one address, senders that come back, and who may connect.
#include "fanin/source/receive_port.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <poll.h>

#include <cstring>
#include <vector>

#include "fanin/source/testing/receive_bench.hpp"

namespace fanin::source {
namespace {

using testing::Bytes;
using testing::bytes_of;
using ::testing::Contains;
using ::testing::HasSubstr;
using testing::payload_of;
using testing::ReceiveBench;
using testing::send_spill;
using testing::SenderBytes;
using testing::SenderSocket;

// Sources 5 and 6 at one address, each with its own queue.
struct TwoSources {
  std::shared_ptr<ReceivePort> port = testing::new_port();
  ReceiveBench five{1024, 64, {.source = 5, .port = port}};
  ReceiveBench six{1024, 64, {.source = 6, .port = port}};

  TwoSources() {
    five.fixture.queue.start(0);
    six.fixture.queue.start(0);
  }
  // One turn of a readout unit.
  void read() {
    five.last = five.source->read(five.fixture.queue, five.now);
    six.last = six.source->read(six.fixture.queue, six.now);
  }
};

Bytes spill_of(SourceId source, EventNumber first, EventNumber end) {
  SenderBytes sender(source);
  sender.preface();
  for (EventNumber event = first; event < end; ++event) {
    sender.fragment(event, bytes_of(10, event));
  }
  return sender.bytes();
}

ReceiveReply answer_to(const SenderSocket& peer) {
  const Bytes bytes = peer.received(sizeof(CheckedBytes<ReceiveReply>));
  ReceiveReply answer;
  EXPECT_EQ(bytes.size(), sizeof(CheckedBytes<ReceiveReply>)) << "no answer";
  if (bytes.size() < sizeof answer) return answer;
  EXPECT_TRUE(own_checksum_fits(bytes));
  std::memcpy(&answer, bytes.data(), sizeof answer);
  EXPECT_EQ(answer.mark, receive_mark);
  EXPECT_EQ(answer.kind, ReceiveKind::answer);
  return answer;
}

// A program of before names its version, and so does one that is to come.
TEST(ReceivePort, the_log_says_which_other_version_came) {
  ReceiveBench bench;
  const SenderSocket other(*bench.source);
  SenderBytes sender(5);
  sender.preface().bytes()[8] = std::byte{4};
  other.send(sender.bytes());
  bench.read_until([&] { return bench.counter("other_version") == 1; });
  EXPECT_TRUE(other.closed());
  EXPECT_THAT(bench.log.back(),
              HasSubstr("other_version: only version 1 of the format is known here (version 4)"));
}

TEST(ReceivePort, each_sender_comes_to_the_source_that_it_names) {
  TwoSources both;
  EXPECT_EQ(both.five.source->listening_url(), both.six.source->listening_url());
  const SenderSocket to_six(*both.six.source);
  to_six.send(spill_of(6, 0, 20));
  const SenderSocket to_five(*both.five.source);
  to_five.send(spill_of(5, 0, 10));
  both.read();
  both.read();
  EXPECT_EQ(both.five.fixture.queue.numbers().written(), 10U);
  EXPECT_EQ(both.six.fixture.queue.numbers().written(), 20U);
  EXPECT_EQ(both.five.counter("connections"), 1U);
  EXPECT_EQ(both.six.counter("connections"), 1U);
}

TEST(ReceivePort, a_source_is_woken_by_a_sender_that_another_source_has_accepted) {
  TwoSources both;
  both.read();
  const SenderSocket to_six(*both.six.source);
  to_six.send(spill_of(6, 0, 3));
  both.five.last = both.five.source->read(both.five.fixture.queue, both.five.now);
  both.six.read_until([&] { return both.six.fixture.queue.numbers().written() == 3; });
}

TEST(ReceivePort, a_full_source_keeps_no_other_one_waiting) {
  TwoSources both;
  ReceiveBench small(4, 64, {.source = 7, .port = both.port});
  small.fixture.queue.start(0);
  const SenderSocket to_small(*small.source);
  to_small.send(spill_of(7, 0, 100));
  small.read_until([&] { return small.fixture.queue.throttled(); });
  const SenderSocket to_five(*both.five.source);
  to_five.send(spill_of(5, 0, 10));
  both.five.read_until([&] { return both.five.fixture.queue.numbers().written() == 10; });
  EXPECT_EQ(small.fixture.queue.numbers().written(), 4U);
}

TEST(ReceivePort, very_many_senders_of_one_source_keep_those_of_another_one_out_of_nothing) {
  TwoSources both;
  const SenderSocket first(*both.five.source);
  first.send(spill_of(5, 0, 1));
  both.read();
  constexpr std::size_t more = 40;
  std::vector<SenderSocket> idle;
  for (std::size_t i = 0; i < ReceivePort::waiting_max + more; ++i) {
    idle.emplace_back(*both.five.source).send(SenderBytes(5).preface().bytes());
    both.read();
  }
  const SenderSocket to_six(*both.six.source);
  to_six.send(spill_of(6, 0, 5));
  both.six.read_until([&] { return both.six.fixture.queue.numbers().written() == 5; });
  EXPECT_TRUE(idle.back().closed());
  EXPECT_FALSE(idle.front().closed());
  EXPECT_EQ(both.five.counter("refused"), more);
  EXPECT_THAT(both.five.log, Contains(HasSubstr("256 senders of this source wait already")));
}

TEST(ReceivePort, a_sender_of_a_source_that_is_not_here_is_told_so_and_counted_once) {
  TwoSources both;
  const SenderSocket old(*both.five.source);
  old.send(spill_of(9, 0, 1));
  const SenderSocket lost(*both.five.source);
  lost.send(SenderBytes(9).preface(77).bytes());
  both.read();
  EXPECT_TRUE(old.closed());
  EXPECT_EQ(answer_to(lost).status, ReceiveStatus::no_source);
  EXPECT_TRUE(lost.closed());
  EXPECT_EQ(both.five.counter("other_source"), 2U);
  EXPECT_EQ(both.six.counter("other_source"), 0U);
}

// Sources of several readout units in a process join the run one after the other: 5 is here, 6 is
// expected.
struct OneExpected {
  std::shared_ptr<ReceivePort> port = testing::new_port();
  AllowedNetworks allow_six;
  ReceiveBench five{1024, 64, {.source = 5, .port = port}};
  ReceiveBench six{1024, 64, {.source = 6, .port = port, .allow = allow_six}, false};

  explicit OneExpected(const char* allow = "0.0.0.0/0")
      : allow_six(AllowedNetworks::parse(allow).value()) {
    five.fixture.queue.start(0);
    six.fixture.queue.start(0);
  }
  void read() { five.last = five.source->read(five.fixture.queue, five.now); }
  // A sender that only this port knows until 6 is here.
  [[nodiscard]] SenderSocket early(const Bytes& bytes) {
    SenderSocket sender(*five.source);
    sender.send(bytes);
    read();
    return sender;
  }
  [[nodiscard]] SenderSocket early(std::uint64_t number) {
    return early(SenderBytes(6).preface(number).bytes());
  }
};

TEST(ReceivePort, a_sender_whose_source_is_not_yet_here_waits_for_it) {
  OneExpected sources;
  const SenderSocket to_six = sources.early(spill_of(6, 0, 20));
  const SenderSocket second = sources.early(2);
  EXPECT_FALSE(to_six.closed());
  EXPECT_EQ(sources.five.counter("other_source"), 0U);
  EXPECT_THAT(sources.five.log,
              Contains(HasSubstr("waits for source 0x6, which has not joined the run")).Times(1));
  ASSERT_TRUE(sources.six.source->start(0, sources.six.now));
  sources.six.read_until([&] { return sources.six.fixture.queue.numbers().written() == 20; });
}

TEST(ReceivePort, a_sender_that_its_source_does_not_allow_does_not_wait_for_it) {
  OneExpected sources("10.0.0.1");
  const SenderSocket stray = sources.early(1);
  EXPECT_TRUE(stray.closed());
  EXPECT_EQ(sources.six.counter("not_allowed"), 1U);
  EXPECT_EQ(sources.five.counter("not_allowed"), 0U);
}

TEST(ReceivePort, a_sender_that_comes_back_before_its_source_is_here_waits_once) {
  OneExpected sources;
  const SenderSocket first = sources.early(77);
  const SenderSocket other = sources.early(78);
  const SenderSocket again = sources.early(77);
  EXPECT_TRUE(first.closed());
  EXPECT_FALSE(other.closed());
  EXPECT_FALSE(again.closed());
}

TEST(ReceivePort, senders_of_sources_that_never_come_keep_out_nobody_whose_source_is_here) {
  OneExpected sources;
  std::vector<SenderSocket> early;
  for (std::uint64_t number = 1; number <= ReceivePort::early_max; ++number) {
    early.push_back(sources.early(number));
  }
  EXPECT_FALSE(early.back().closed());
  const SenderSocket beyond = sources.early(ReceivePort::early_max + 1);
  EXPECT_TRUE(beyond.closed());
  EXPECT_EQ(sources.five.counter("refused"), 1U);
  EXPECT_THAT(sources.five.log, Contains(HasSubstr("256 senders wait already for source 0x6")));
  const SenderSocket to_five(*sources.five.source);
  to_five.send(spill_of(5, 0, 10));
  sources.five.read_until([&] { return sources.five.fixture.queue.numbers().written() == 10; });
  EXPECT_FALSE(early.front().closed());

  for (SenderSocket& sender : early) sender.close();
  const SenderSocket later = sources.early(1000);
  EXPECT_FALSE(later.closed()) << "it takes the place of one that has gone";
  EXPECT_EQ(sources.five.counter("refused"), 1U);
}

TEST(ReceivePort, a_source_that_is_not_here_leaves_the_others_their_places) {
  OneExpected sources;
  const ReceiveBench seven(16, 64, {.source = 7, .port = sources.port}, false);
  std::vector<SenderSocket> early;
  for (std::uint64_t number = 1; number <= ReceivePort::early_max / 2; ++number) {
    early.push_back(sources.early(number));
  }
  EXPECT_FALSE(early.back().closed());
  EXPECT_TRUE(sources.early(1000).closed());
  EXPECT_FALSE(sources.early(spill_of(7, 0, 20)).closed()) << "it knows no answer, and sends once";
}

TEST(ReceivePort, what_a_sender_sent_before_it_closed_and_before_its_source_came_is_read) {
  OneExpected sources;
  sources.early(spill_of(6, 0, 20)).close();
  std::vector<SenderSocket> others;
  for (std::uint64_t number = 1; number <= ReceivePort::early_max; ++number) {
    others.push_back(sources.early(number));
  }
  EXPECT_TRUE(others.back().closed());
  ASSERT_TRUE(sources.six.source->start(0, sources.six.now));
  sources.six.read_until([&] { return sources.six.fixture.queue.numbers().written() == 20; });
}

TEST(ReceivePort, senders_of_a_source_that_is_withdrawn_are_told_at_once_that_there_is_none) {
  OneExpected sources;
  const SenderSocket early = sources.early(1);
  sources.six.source.reset();
  EXPECT_EQ(answer_to(early).status, ReceiveStatus::no_source);
  EXPECT_TRUE(early.closed());
  EXPECT_EQ(sources.five.counter("other_source"), 1U);
  const SenderSocket later = sources.early(2);
  EXPECT_EQ(answer_to(later).status, ReceiveStatus::no_source);
  EXPECT_EQ(sources.five.counter("other_source"), 2U);
}

TEST(ReceivePort, stays_open_after_the_end_of_a_source_while_another_one_is_expected) {
  OneExpected sources;
  const SenderSocket early = sources.early(spill_of(6, 0, 20));
  const SenderSocket only(*sources.five.source);
  only.send(SenderBytes(5).preface().end().bytes());
  sources.five.read_until([&] { return sources.five.last.state == ReadState::finished; });
  EXPECT_FALSE(early.closed());
  EXPECT_EQ(sources.five.counter("refused"), 0U);
  ASSERT_NE(sources.port->listening_url(), "");
  ASSERT_TRUE(sources.six.source->start(0, sources.six.now));
  sources.six.read_until([&] { return sources.six.fixture.queue.numbers().written() == 20; });
}

TEST(ReceivePort, closes_when_its_only_source_that_has_not_ended_is_withdrawn) {
  OneExpected sources;
  const SenderSocket early = sources.early(1);
  const SenderSocket only(*sources.five.source);
  only.send(SenderBytes(5).preface().end().bytes());
  sources.five.read_until([&] { return sources.five.last.state == ReadState::finished; });
  sources.six.source.reset();
  EXPECT_EQ(answer_to(early).status, ReceiveStatus::no_source);
  EXPECT_TRUE(early.closed());
  EXPECT_EQ(sources.port->listening_url(), "");
}

// Nobody reads it any more: its readout unit would be woken again and again.
TEST(ReceivePort, a_source_that_has_ended_is_not_woken_by_who_comes_for_others) {
  TwoSources both;
  const SenderSocket only(*both.five.source);
  only.send(SenderBytes(5).preface().end().bytes());
  both.five.read_until([&] { return both.five.last.state == ReadState::finished; });
  const SenderSocket to_six(*both.six.source);
  to_six.send(spill_of(6, 0, 5));
  pollfd six{both.six.source->descriptor(), POLLIN, 0};
  ASSERT_EQ(::poll(&six, 1, 10000), 1);
  pollfd five{both.five.source->descriptor(), POLLIN, 0};
  EXPECT_EQ(::poll(&five, 1, 0), 0);
}

TEST(ReceivePort, one_source_ends_and_the_others_go_on) {
  TwoSources both;
  SenderBytes sender(5);
  const SenderSocket first(*both.five.source);
  first.send(sender.preface().fragment(0, bytes_of(10, 0)).bytes());
  both.read();
  const SenderSocket waits(*both.five.source);
  waits.send(SenderBytes(5).preface(1).bytes());
  both.read();
  sender.bytes().clear();
  first.send(sender.end().bytes());
  both.read();
  EXPECT_EQ(both.five.last.state, ReadState::finished);
  EXPECT_EQ(both.five.source->listening_url(), "");
  EXPECT_EQ(answer_to(waits).status, ReceiveStatus::ended);
  EXPECT_TRUE(waits.closed());
  EXPECT_EQ(both.five.counter("refused"), 1U);
  const SenderSocket comes_later(*both.six.source);
  comes_later.send(SenderBytes(5).preface(2).bytes());
  both.read();
  EXPECT_EQ(answer_to(comes_later).status, ReceiveStatus::ended);
  EXPECT_TRUE(comes_later.closed());
  EXPECT_EQ(both.six.counter("other_source"), 0U);
  EXPECT_EQ(both.six.counter("refused"), 1U);
  EXPECT_THAT(both.six.log, Contains(HasSubstr("refused: the data of source 0x5 have ended")));
  const SenderSocket to_six(*both.six.source);
  to_six.send(spill_of(6, 0, 5));
  both.six.read_until([&] { return both.six.fixture.queue.numbers().written() == 5; });
}

TEST(ReceivePort, sources_of_one_address_share_it_and_port_0_is_always_a_new_one) {
  net::TcpStreams streams;
  ReceivePorts ports;
  const auto at = [&](const char* url) {
    return ports.at(net::Url::parse(url).value(), streams).value();
  };
  const auto shared = at("tcp://127.0.0.1:7500");
  EXPECT_EQ(shared, at("tcp://127.0.0.1:7500"));
  EXPECT_NE(shared, at("tcp://127.0.0.1:7501"));
  EXPECT_NE(at("tcp://127.0.0.1"), at("tcp://127.0.0.1"));
}

TEST(ReceivePort, sources_of_two_nodes_in_a_process_share_none) {
  net::TcpStreams one;
  net::TcpStreams other;
  ReceivePorts ports;
  const auto url = net::Url::parse("tcp://127.0.0.1:7500").value();
  const auto port = ports.at(url, one).value();
  EXPECT_EQ(&ports.at(url, other).value()->streams(), &other);
  EXPECT_EQ(ports.at(url, one).value(), port);
}

TEST(ReceivePort, a_reliable_sender_learns_at_its_turn_what_was_read) {
  ReceiveBench bench;
  bench.fixture.queue.start(0);
  SenderSocket first(*bench.source);
  SenderBytes sender(5);
  first.send(sender.preface(1).bytes());
  bench.last = bench.source->read(bench.fixture.queue, bench.now);
  const ReceiveReply answer = answer_to(first);
  EXPECT_EQ(answer.status, ReceiveStatus::send);
  EXPECT_EQ(answer.source, 5U);
  EXPECT_EQ(answer.end, 0U);
  sender.bytes().clear();
  sender.fragment(0, bytes_of(10, 0)).fragment(1, bytes_of(10, 1)).fragment(2, bytes_of(10, 2));
  sender.bytes().resize(sender.bytes().size() - 1);
  first.send(sender.bytes());
  const SenderSocket second(*bench.source);
  second.send(SenderBytes(5).preface(2).bytes());
  bench.read_until([&] { return bench.fixture.queue.numbers().written() == 2; });
  EXPECT_EQ(second.received(1).size(), 0U) << "it is not its turn";
  first.close();
  bench.read_until([&] { return bench.counter("cut_short") == 1; });
  EXPECT_EQ(second.received(1).size(), 0U) << "the first may come back";
  bench.now += std::chrono::milliseconds{500};
  bench.read_until([&] { return bench.counter("connections") == 2; });
  EXPECT_EQ(answer_to(second).end, 2U) << "event 2 was cut off";
}

TEST(ReceivePort, a_sender_that_comes_back_takes_the_place_of_its_old_connection) {
  ReceiveBench bench;
  bench.fixture.queue.start(0);
  const SenderSocket first(*bench.source); // it never closes: its host has lost its power
  SenderBytes sender(5);
  first.send(sender.preface(77).fragment(0, bytes_of(10, 0)).bytes());
  bench.read_until([&] { return bench.fixture.queue.numbers().written() == 1; });
  sender.bytes().clear();
  first.send(sender.fragment(1, bytes_of(10, 1)).bytes()); // on its way when it comes back
  const SenderSocket again(*bench.source);
  again.send(SenderBytes(5).preface(77).bytes());
  bench.read_until([&] { return bench.counter("connections") == 2; });
  EXPECT_EQ(bench.fixture.queue.numbers().written(), 2U);
  EXPECT_EQ(answer_to(again).end, 2U);
  sender.bytes().clear();
  again.send(sender.fragment(2, bytes_of(10, 2)).bytes());
  bench.read_until([&] { return bench.fixture.queue.numbers().written() == 3; });
}

// Each would connect again as soon as the other has taken its place, for ever.
TEST(ReceivePort, two_programs_with_one_number_are_named_and_the_first_keeps_its_place) {
  ReceiveBench bench;
  bench.fixture.queue.start(0);
  std::vector<SenderSocket> connections; // of the first, the second, the first
  for (EventNumber event = 0; event < 3; ++event) {
    SenderBytes sender(5);
    connections.emplace_back(*bench.source)
        .send(sender.preface(77).fragment(event, bytes_of(10, event)).bytes());
    bench.read_until([&] { return bench.fixture.queue.numbers().written() == event + 1; });
  }
  EXPECT_THAT(bench.log, Contains(HasSubstr(
                             fmt::format("{} disconnected: its sender is connected again, as {}",
                                         connections[0].address(), connections[1].address()))));
  const SenderSocket& first = connections.back();
  std::vector<SenderSocket> second;
  for (EventNumber event = 3; event < 20; ++event) {
    second.emplace_back(*bench.source).send(SenderBytes(5).preface(77).bytes());
    bench.now += std::chrono::milliseconds{900};
    first.send(SenderBytes(5).reliable().fragment(event, bytes_of(10, event)).bytes());
    bench.read_until([&] { return bench.fixture.queue.numbers().written() == event + 1; });
    ASSERT_THAT(bench.log,
                Contains(HasSubstr(fmt::format(
                    "{} and {} have connected in turn with the same number of a sender, 77.",
                    first.address(), second.back().address()))));
  }
  EXPECT_EQ(bench.counter("connections"), 3U);
  EXPECT_EQ(second.back().available(), 0U) << "it is not its turn";

  bench.last = bench.source->read(bench.fixture.queue, bench.now);
  ASSERT_EQ(bench.last.wake, bench.now + std::chrono::seconds{1});
  bench.now = bench.last.wake; // the first is silent
  bench.read_until([&] { return bench.counter("connections") == 4; });
  EXPECT_EQ(answer_to(second.back()).end, 20U);
}

TEST(ReceivePort, a_sender_that_comes_back_while_it_waits_waits_once) {
  ReceiveBench bench;
  bench.fixture.queue.start(0);
  SenderSocket first(*bench.source);
  first.send(spill_of(5, 0, 1));
  bench.read_until([&] { return bench.fixture.queue.numbers().written() == 1; });
  const SenderSocket waits(*bench.source);
  waits.send(SenderBytes(5).preface(77).bytes());
  const SenderSocket again(*bench.source);
  again.send(SenderBytes(5).preface(77).bytes());
  bench.last = bench.source->read(bench.fixture.queue, bench.now);
  first.close();
  bench.read_until([&] { return bench.counter("connections") == 2; });
  EXPECT_EQ(waits.received(1).size(), 0U);
  EXPECT_EQ(answer_to(again).status, ReceiveStatus::send);
}

TEST(ReceivePort, who_is_not_allowed_is_closed_counted_and_fills_no_log) {
  ReceiveBench bench(1024, 64, {.allow = AllowedNetworks::parse("10.0.0.0/8, ::1").value()});
  bench.fixture.queue.start(0);
  for (std::uint64_t i = 1; i <= 50; ++i) {
    const SenderSocket peer(*bench.source);
    bench.read_until([&] { return bench.counter("not_allowed") == i; });
    ASSERT_TRUE(peer.closed());
  }
  EXPECT_THAT(bench.log,
              Contains(HasSubstr("disconnected: not_allowed: its address is not on the list")));
  EXPECT_LE(bench.log.size(), 5U);
  EXPECT_EQ(bench.fixture.queue.numbers().written(), 0U);
}

TEST(ReceivePort, each_source_of_an_address_has_its_own_list_of_who_may_connect) {
  const auto port = testing::new_port();
  ReceiveBench far(
      16, 64, {.source = 6, .port = port, .allow = AllowedNetworks::parse("10.0.0.1").value()});
  ReceiveBench near(
      16, 64, {.source = 5, .port = port, .allow = AllowedNetworks::parse("127.0.0.0/8").value()});
  near.fixture.queue.start(0);
  const SenderSocket to_far(*far.source);
  to_far.send(spill_of(6, 0, 1));
  const SenderSocket to_near(*near.source);
  to_near.send(spill_of(5, 0, 1));
  near.read_until([&] { return near.fixture.queue.numbers().written() == 1; });
  far.read_until([&] { return far.counter("not_allowed") == 1; });
  EXPECT_TRUE(to_far.closed());
  EXPECT_EQ(near.counter("not_allowed"), 0U);
}

TEST(ReceivePort, a_source_that_waits_for_its_sender_is_ready_when_that_has_connected) {
  ReceiveBench bench(1024, 64, {.wait_for_sender = true}, false);
  bench.fixture.queue.start(0);
  EXPECT_FALSE(bench.source->ready(Time{}));
  const SenderSocket stray(*bench.source);
  EXPECT_FALSE(bench.source->ready(Time{}));
  const SenderSocket sender(*bench.source);
  sender.send(spill_of(5, 0, 3));
  EXPECT_TRUE(bench.source->ready(Time{}));
  pollfd watched{.fd = bench.source->descriptor(), .events = POLLIN, .revents = 0};
  EXPECT_TRUE(bench.source->ready(Time{}));
  EXPECT_EQ(::poll(&watched, 1, 0), 0) << "other sources may let it wait for hours";
  EXPECT_THAT(bench.log,
              Contains(HasSubstr("the run begins when its sender has connected")).Times(1));
  ASSERT_TRUE(bench.source->start(0, Time{}));
  bench.read_until([&] { return bench.fixture.queue.numbers().written() == 3; });
}

// Its own data may be lost with it: the run would begin without them.
TEST(ReceivePort, a_source_whose_sender_has_gone_is_not_ready_until_another_one_comes) {
  ReceiveBench bench(1024, 64, {.wait_for_sender = true}, false);
  bench.fixture.queue.start(0);
  const auto becomes = [&](bool ready) {
    while (bench.source->ready(Time{}) != ready) {
    }
  };
  for (int i = 0; i < 2; ++i) { // reliable ones: what they have sent does not count
    EXPECT_FALSE(bench.source->ready(Time{}));
    SenderSocket reliable(*bench.source);
    SenderBytes bytes(5);
    reliable.send(
        bytes.preface(77 + static_cast<std::uint64_t>(i)).fragment(0, bytes_of(10, 0)).bytes());
    becomes(true);
    reliable.close();
    becomes(false);
  }
  {
    const SenderSocket empty(*bench.source);
    SenderBytes bytes(5);
    empty.send(bytes.preface().bytes());
    becomes(true);
  }
  becomes(false);
  send_spill(*bench.source, 0, 3); // it has sent all and gone
  becomes(true);
  ASSERT_TRUE(bench.source->start(0, Time{}));
  while (bench.fixture.queue.next_event() != 3) { // the dead one's place is kept for a while
    bench.last = bench.source->read(bench.fixture.queue, bench.now);
    bench.now += std::chrono::milliseconds{100};
  }
}

// What it answers to a builder unit of that run; it keeps its connection if it is its turn.
ReceiveReply answer_to(ReceiveBench& bench, const RunIdentity& run, std::uint64_t sender) {
  const SenderSocket group(*bench.source);
  SenderBytes bytes(5);
  group.send(bytes.preface(sender, run).bytes());
  ReceiveReply reply;
  while (group.available() < sizeof(CheckedBytes<ReceiveReply>)) { // the one before has its place
    bench.last = bench.source->read(bench.fixture.queue, bench.now);
    bench.now += std::chrono::milliseconds{100};
  }
  const Bytes received = group.received(sizeof reply);
  std::memcpy(&reply, received.data(), sizeof reply);
  return reply;
}

TEST(ReceivePort, a_group_of_another_run_is_refused_and_its_successor_gets_its_place) {
  ReceiveBench bench;
  bench.source->joined({.number = 6, .id = 60});
  const ReceiveReply forgotten = answer_to(bench, {.number = 5, .id = 50}, 1);
  EXPECT_EQ(forgotten.status, ReceiveStatus::other_run);
  EXPECT_EQ(forgotten.end, 6U);
  EXPECT_EQ(bench.counter("other_run"), 1U);
  EXPECT_THAT(bench.log, Contains(HasSubstr("run 5; here run 6 is built")));
  EXPECT_EQ(answer_to(bench, {.number = 6, .id = 61}, 2).status, ReceiveStatus::send);
  EXPECT_EQ(answer_to(bench, {.number = 6, .id = 61}, 3).status, ReceiveStatus::send);
  EXPECT_EQ(answer_to(bench, {.number = 6, .id = 62}, 4).status, ReceiveStatus::other_run);
  EXPECT_THAT(bench.log, Contains(HasSubstr("both have the number 6, but its id is 3e, not 3d")));
}

TEST(ReceivePort, where_one_command_has_started_all_only_its_groups_are_taken) {
  ReceiveBench bench;
  bench.source->joined({.number = 6, .id = 60, .shared = true});
  EXPECT_EQ(answer_to(bench, {.number = 6, .id = 61}, 1).status, ReceiveStatus::other_run);
  EXPECT_EQ(answer_to(bench, {.number = 6, .id = 60}, 2).status, ReceiveStatus::send);
}

TEST(ReceivePort, an_address_in_use_is_found_before_the_run) {
  ReceiveBench first(16, 64, {}, false);
  ASSERT_TRUE(first.source->prepare());
  const std::string taken = first.source->listening_url();
  EXPECT_NE(taken, "");
  ReceiveBench second(
      16, 64, {.port = testing::new_port(taken.c_str()), .listen_from = "run.toml:3: listen"},
      false);
  const auto prepared = second.source->prepare();
  ASSERT_FALSE(prepared);
  EXPECT_THAT(prepared.error().text, HasSubstr("run.toml:3: listen: " + taken));
}

TEST(ReceivePort, other_sources_wait_for_no_sender_and_one_that_cannot_listen_does_not_either) {
  ReceiveBench plain;
  EXPECT_TRUE(plain.source->ready(Time{}));
  const std::string taken = plain.source->listening_url();
  ReceiveBench second(16, 64, {.port = testing::new_port(taken.c_str()), .wait_for_sender = true},
                      false);
  EXPECT_TRUE(second.source->ready(Time{})) << "start() says what is wrong";
  EXPECT_FALSE(second.source->start(0, Time{}));
}

} // namespace
} // namespace fanin::source
