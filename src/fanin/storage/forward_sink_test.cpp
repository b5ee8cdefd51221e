#include "fanin/storage/forward_sink.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fanin/base/log_limiter.hpp"
#include "fanin/net/tcp_socket.hpp"
#include "fanin/storage/testing/forward_fixture.hpp"

namespace fanin::storage {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using testing::BatchMaker;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using testing::Forward;
using ::testing::IsEmpty;
using testing::merged;
using testing::Slice;
using ::testing::StartsWith;

TEST_F(Forward, blocks_are_dealt_and_commit_when_they_are_announced) {
  left_.emplace();
  right_.emplace();
  make({left_->source->listening_url(), right_->source->listening_url()});
  for (EventNumber first = 0; first < 16; first += 4) {
    ASSERT_EQ(submit(first), SubmitOutcome::accepted);
  }
  until([&] {
    return left_->fixture.queue.numbered() && left_->fixture.queue.next_event() == 8 &&
           right_->fixture.queue.numbered() && right_->fixture.queue.next_event() == 8;
  });
  EXPECT_THAT(committed_, IsEmpty());
  left_->source->announced(7);
  right_->source->announced(8);
  until([&] { return committed_.size() == 3; });
  EXPECT_THAT(committed_, ::testing::UnorderedElementsAre(0, 4, 12));
  sink_->finish();
  EXPECT_FALSE(sink_->finished());
  left_->source->announced(8);
  until([&] { return sink_->finished(); });
  EXPECT_EQ(undelivered_, 0U);
  EXPECT_TRUE(maker_.all_home());
  EXPECT_GT(sink_->bytes_written(), 0U);
}

TEST_F(Forward, at_the_end_of_the_run_all_slices_are_told_to_wait_for_nothing) {
  left_.emplace();
  right_.emplace(); // there is no batch for it
  make({left_->source->listening_url(), right_->source->listening_url()});
  deliver_first_batch();
  sink_->run_ended();
  sink_->finish();
  EXPECT_FALSE(sink_->finished());
  left_->source->announced(5); // not heard any more, and no reason to reset the connection
  until([&] { return sink_->finished(); });
  EXPECT_EQ(left_->last, source::ReadState::paused);
  EXPECT_EQ(right_->last, source::ReadState::paused);
  EXPECT_EQ(log_, "");
}

TEST_F(Forward, connects_when_the_run_begins_and_there_is_no_batch_yet) {
  left_.emplace();
  run_begins_ = false;
  make({left_->source->listening_url()});
  turn(1h);
  EXPECT_EQ(left_->source->counters().front().value, 0U);
  sink_->run_began(0);
  until([&] { return left_->source->counters().front().value == 1; });
  turn(1h);
  EXPECT_EQ(sink_->waits_for(), "");
  EXPECT_EQ(log_, "");
}

TEST_F(Forward, serves_the_slices_of_its_builder_unit) {
  left_.emplace();
  right_.emplace();
  const std::string nobody = "tcp://127.0.0.1:1";
  builder_ = 1;
  builders_ = 2;
  make({nobody, left_->source->listening_url(), nobody, right_->source->listening_url()});
  ASSERT_EQ(submit(28), SubmitOutcome::accepted);
  until([&] { return right_->knows(8); }); // 28 to 31 are 4 to 7 of the slice
  ASSERT_EQ(submit(36), SubmitOutcome::accepted);
  until([&] { return left_->knows(12); });
  EXPECT_EQ(log_, "");
}

TEST_F(Forward, tells_nobody_of_a_run_that_ended_before_it_began) {
  left_.emplace();
  run_begins_ = false;
  make({left_->source->listening_url()});
  sink_->run_ended();
  sink_->finish();
  EXPECT_TRUE(sink_->finished());
}

TEST_F(Forward, at_the_end_of_the_run_a_slice_that_is_still_to_come_is_waited_for) {
  left_.emplace();
  const std::string url = left_->source->listening_url();
  left_.reset();
  make({url});
  sink_->run_ended();
  sink_->finish();
  for (int i = 0; i < 40; ++i) turn(100ms);
  EXPECT_FALSE(sink_->finished());
  left_.emplace(url);
  until([&] { return sink_->finished(); });
  EXPECT_EQ(left_->last, source::ReadState::paused);
}

TEST_F(Forward, at_the_end_of_the_run_a_slice_that_does_not_come_is_left) {
  make({"tcp://127.0.0.1:1"});
  sink_->run_ended();
  sink_->finish();
  for (int i = 0; i < 49; ++i) turn(100ms);
  EXPECT_FALSE(sink_->finished());
  EXPECT_EQ(log_, "");
  turn(100ms);
  turn(100ms);
  EXPECT_TRUE(sink_->finished());
}

TEST_F(Forward, a_slice_that_was_away_for_long_is_not_waited_for_at_the_end_of_the_run) {
  make({"tcp://127.0.0.1:1"});
  for (int i = 0; i < 101; ++i) turn(100ms);
  EXPECT_THAT(log_, ::testing::HasSubstr("no connection to slice 0"))
      << "although it has nothing to get";
  sink_->run_ended();
  sink_->finish();
  (void)loop_.turn();
  EXPECT_TRUE(sink_->finished());
}

TEST_F(Forward, give_up_counts_from_the_first_batch) {
  make({"tcp://127.0.0.1:1"});
  for (int i = 0; i < 300; ++i) turn(100ms);
  ASSERT_EQ(submit(0), SubmitOutcome::accepted);
  for (int i = 0; i < 99; ++i) turn(100ms);
  EXPECT_THAT(committed_, IsEmpty());
  for (int i = 0; i < 2; ++i) turn(100ms);
  EXPECT_THAT(committed_, ElementsAre(0));
  ASSERT_EQ(submit(4), SubmitOutcome::accepted);
  for (int i = 0; i < 2; ++i) turn(100ms);
  EXPECT_THAT(committed_, ElementsAre(0, 4)) << "not from each one";
  EXPECT_EQ(undelivered_, 8U);
}

TEST_F(Forward, a_sink_that_another_one_follows_says_no_end) {
  left_.emplace();
  make({left_->source->listening_url()});
  deliver_first_batch();
  sink_->finish();
  EXPECT_TRUE(sink_->finished());
  loop_.remove(*sink_);
  sink_.reset();
  left_->read();
  EXPECT_EQ(left_->last, source::ReadState::waiting);
}

TEST_F(Forward, a_slice_that_does_not_read_keeps_nobody_at_the_end_of_the_run) {
  left_.emplace();
  make({left_->source->listening_url()});
  deliver_first_batch();
  slices_read_ = false;
  sink_->run_ended();
  sink_->finish();
  turn(4s);
  turn(1s);
  EXPECT_FALSE(sink_->finished());
  turn(1s);
  EXPECT_TRUE(sink_->finished());
}

TEST_F(Forward, says_for_which_slice_it_waits_and_for_how_long) {
  left_.emplace();
  right_.emplace();
  const std::string url = left_->source->listening_url();
  const auto for_seconds = [&](const std::string& what) {
    return AllOf(StartsWith("slice 0 at " + url + ", which " + what + " for "), EndsWith(" s"));
  };
  make({url, right_->source->listening_url()});
  EXPECT_EQ(sink_->waits_for(), "");
  ASSERT_EQ(submit(0), SubmitOutcome::accepted);
  until_left_has_read(4);
  clock_.advance(12s);
  turn(1ms);
  ASSERT_EQ(submit(4), SubmitOutcome::accepted); // to the other one, which nobody waits for as long
  EXPECT_THAT(sink_->waits_for(), for_seconds("has announced nothing"));
  until(
      [&] { return right_->fixture.queue.numbered() && right_->fixture.queue.next_event() == 4; });
  right_->source->announced(4);
  until([&] { return committed_.size() == 1; });
  left_->source->announced(2);
  until([&] { return sink_->waits_for() == "slice 0 at " + url; });
  left_.reset();
  until([&] { return log_.contains("no connection to slice 0"); });
  clock_.advance(3s);
  turn(1ms);
  EXPECT_THAT(sink_->waits_for(), for_seconds("is not connected and has announced nothing"));
  left_.emplace(url);
  until_left_has_read(4);
  left_->source->announced(4);
  until([&] { return committed_.size() == 2; });
  EXPECT_EQ(sink_->waits_for(), "");
}

TEST_F(Forward, a_slice_that_comes_back_elsewhere_under_its_name_is_found) {
  std::string host = "127.0.0.1";
  int asked = 0;
  net::BlockingResolver names([&](const std::string&) -> net::Resolver::Found {
    ++asked;
    if (host.empty()) return fail(ErrorKind::not_found, "no such host");
    return net::addresses_of_number(host).value();
  });
  loop_.set_resolver(&names);
  left_.emplace();
  const std::uint16_t port = net::Url::parse(left_->source->listening_url()).value().port;
  make({fmt::format("tcp://daq-s0:{}", port)});
  ASSERT_EQ(submit(0), SubmitOutcome::accepted);
  until_left_has_read(4);
  EXPECT_EQ(asked, 1);
  left_.reset();
  host = "127.0.0.2";
  left_.emplace(fmt::format("tcp://127.0.0.2:{}", port));
  until_left_has_read(4);
  EXPECT_GE(asked, 2);
  left_->source->announced(4);
  until([&] { return committed_.size() == 1; });
  EXPECT_EQ(undelivered_, 0U);
  end_of_names();
}

TEST_F(Forward, a_name_service_that_takes_its_time_or_fails_holds_up_nobody) {
  net::ScriptedResolver names(loop_);
  loop_.set_resolver(&names);
  names.take(2s);
  names.fail(ErrorKind::not_found);
  left_.emplace();
  right_.emplace();
  const std::uint16_t port = net::Url::parse(left_->source->listening_url()).value().port;
  make({fmt::format("tcp://daq-s0:{}", port), right_->source->listening_url()});
  ASSERT_EQ(submit(0), SubmitOutcome::accepted);
  ASSERT_EQ(submit(4), SubmitOutcome::accepted);
  until(
      [&] { return right_->fixture.queue.numbered() && right_->fixture.queue.next_event() == 4; });
  right_->source->announced(4);
  until([&] { return committed_.size() == 1; });
  EXPECT_FALSE(log_.contains("no connection to slice 0"));
  clock_.advance(2s);
  until([&] { return log_.contains("(host \"daq-s0\": not known); waiting up to 10 s"); });
  names.fail(std::nullopt);
  until([&] { return names.asked() == 2; });
  clock_.advance(2s);
  until_left_has_read(4);
  left_->source->announced(4);
  until([&] { return committed_.size() == 2; });
  EXPECT_EQ(undelivered_, 0U);
  end_of_names();
}

TEST_F(Forward, a_slice_that_comes_back_is_reached_without_the_name_service) {
  net::ScriptedResolver names(loop_);
  loop_.set_resolver(&names);
  left_.emplace();
  const std::string url = left_->source->listening_url();
  make({fmt::format("tcp://daq-s0:{}", net::Url::parse(url).value().port)});
  ASSERT_EQ(submit(0), SubmitOutcome::accepted);
  until_left_has_read(4);
  EXPECT_EQ(names.asked(), 1U);
  names.take(60s); // much longer than give_up

  left_.reset();
  left_.emplace(url);
  until_left_has_read(4);
  EXPECT_EQ(names.asked(), 1U) << "the address that answered is tried first";

  left_.reset();
  until([&] { return names.asked() == 2; }); // after it has failed
  for (int i = 0; i < 30; ++i) turn(100ms);
  left_.emplace(url);
  until_left_has_read(4);
  left_->source->announced(4);
  until([&] { return committed_.size() == 1; });
  EXPECT_EQ(undelivered_, 0U);
  EXPECT_EQ(names.asked(), 2U);
  end_of_names();
}

TEST_F(Forward, what_a_slice_had_not_announced_when_it_died_is_sent_again) {
  left_.emplace();
  const std::string url = left_->source->listening_url();
  make({url});
  ASSERT_EQ(submit(0), SubmitOutcome::accepted);
  ASSERT_EQ(submit(4), SubmitOutcome::accepted);
  until([&] { return left_->fixture.queue.numbered() && left_->fixture.queue.next_event() == 8; });
  left_->source->announced(4);
  until([&] { return committed_.size() == 1; });
  left_.reset();
  ASSERT_EQ(submit(8), SubmitOutcome::accepted);
  left_.emplace(url);
  until([&] { return left_->fixture.queue.numbered() && left_->fixture.queue.next_event() == 12; });
  EXPECT_EQ(left_->fixture.queue.first_event(), 4U);
  left_->source->announced(12);
  until([&] { return committed_.size() == 3; });
  EXPECT_THAT(committed_, ElementsAre(0, 4, 8));
  EXPECT_THAT(log_, ::testing::HasSubstr("no connection to slice 0"));
  EXPECT_THAT(log_, ::testing::HasSubstr("connected to slice 0"));
}

TEST_F(Forward, losses_that_follow_each_other_write_few_lines) {
  const auto lines = [&](const std::string& what) {
    std::uint64_t count = 0;
    for (auto at = log_.find(what); at != std::string::npos; at = log_.find(what, at + 1)) ++count;
    return count;
  };
  left_.emplace();
  const std::string url = left_->source->listening_url();
  make({url});
  const Time begin = clock_.now();
  for (EventNumber event = 0; event < 80; event += 4) {
    ASSERT_EQ(submit(event), SubmitOutcome::accepted);
    until_left_has_read(event + 4);
    left_->source->announced(event + 4);
    until([&] { return committed_.size() == event / 4 + 1; });
    left_.reset();
    left_.emplace(url);
  }
  const auto seconds = static_cast<std::uint64_t>((clock_.now() - begin) / std::chrono::seconds{1});
  until([&] { return lines("connected to slice 0") == lines("no connection to slice 0"); });
  EXPECT_LE(lines("no connection to slice 0"), LogLimiter::lines_max * (seconds + 1)) << log_;
  EXPECT_GT(lines("no connection to slice 0"), 0U);
}

TEST_F(Forward, a_slice_that_takes_nothing_holds_the_builder_unit_back) {
  left_.emplace();
  make({left_->source->listening_url()});
  for (const EventNumber first : {0U, 4U, 8U}) {
    ASSERT_EQ(submit(first), SubmitOutcome::accepted);
  }
  EXPECT_EQ(submit(12), SubmitOutcome::busy);
  until([&] { return left_->fixture.queue.numbered() && left_->fixture.queue.next_event() == 12; });
  left_->source->announced(4);
  until([&] { return committed_.size() == 1; });
  EXPECT_EQ(submit(12), SubmitOutcome::accepted);
}

TEST_F(Forward, a_slice_that_stays_away_loses_its_events_and_the_others_go_on) {
  right_.emplace();
  std::string nobody;
  {
    const Slice gone;
    nobody = gone.source->listening_url();
  }
  make({nobody, right_->source->listening_url()});
  ASSERT_EQ(submit(0), SubmitOutcome::accepted);
  ASSERT_EQ(submit(4), SubmitOutcome::accepted);
  until(
      [&] { return right_->fixture.queue.numbered() && right_->fixture.queue.next_event() == 4; });
  right_->source->announced(4);
  until([&] { return committed_.size() == 1; });
  EXPECT_THAT(committed_, ElementsAre(4));
  clock_.advance(10s);
  until([&] { return committed_.size() == 2; });
  EXPECT_EQ(undelivered_, 4U);
  EXPECT_THAT(log_, ::testing::HasSubstr("slice 0 at " + nobody + " is given up"));
  ASSERT_EQ(submit(8), SubmitOutcome::accepted);
  until([&] { return committed_.size() == 3; });
  EXPECT_EQ(undelivered_, 8U);

  left_.emplace(nobody); // it is back
  until([&] { return log_.contains("connected to slice 0"); });
  ASSERT_EQ(submit(16), SubmitOutcome::accepted);
  until([&] {
    return left_->fixture.queue.numbers().held() || left_->fixture.queue.next_event() == 12;
  });
  until([&] { return left_->fixture.queue.next_event() == 12; });
  left_->source->announced(12);
  until([&] { return committed_.size() == 4; });
  EXPECT_EQ(undelivered_, 8U);
}

TEST_F(Forward, what_a_slice_had_announced_before_it_stayed_away_is_delivered) {
  left_.emplace();
  make({left_->source->listening_url()});
  ASSERT_EQ(submit(0), SubmitOutcome::accepted);
  until_left_has_read(4);
  left_->source->announced(3);
  for (int i = 0; i < 10; ++i) turn(1ms); // the sink has heard it
  left_.reset();
  until([&] { return log_.contains("no connection to slice 0"); });
  clock_.advance(10s);
  until([&] { return committed_.size() == 1; });
  EXPECT_EQ(undelivered_, 1U);
}

TEST_F(Forward, a_slice_is_told_of_numbers_that_no_source_has) {
  left_.emplace();
  make({left_->source->listening_url()});
  ASSERT_EQ(submit(0, 2), SubmitOutcome::accepted);
  until([&] { return left_->knows(4); });
  EXPECT_THAT(committed_, IsEmpty());
  left_->source->announced(2);
  until([&] { return committed_.size() == 1; });

  ASSERT_EQ(submit(4, 0), SubmitOutcome::accepted);
  until([&] { return committed_.size() == 2; }); // the slice may announce nothing of it
  until([&] { return left_->knows(8); });
  EXPECT_EQ(undelivered_, 0U);
}

TEST_F(Forward, a_batch_without_events_waits_for_its_slice) {
  left_.emplace();
  const std::string url = left_->source->listening_url();
  left_.reset();
  make({url});
  ASSERT_EQ(submit(0, 0), SubmitOutcome::accepted);
  for (int i = 0; i < 90; ++i) turn(100ms); // 9 s
  EXPECT_THAT(committed_, IsEmpty());
  left_.emplace(url);
  until([&] { return left_->knows(4); });
  until([&] { return committed_.size() == 1; });

  left_.reset();
  for (int i = 0; i < 90; ++i) turn(100ms);
  ASSERT_EQ(submit(4, 0), SubmitOutcome::accepted);
  until([&] { return committed_.size() == 2; }); // 10 s are over
  EXPECT_EQ(undelivered_, 0U);
  EXPECT_THAT(log_, ::testing::Not(::testing::HasSubstr("is given up")));
}

// As a new builder unit, which builds again what the slice has announced. Its readout unit has
// joined again, and does not know what it had read before.
TEST_F(Forward, of_a_batch_that_is_announced_the_end_is_sent) {
  left_.emplace();
  left_->source->announced(2);
  first_ = false;
  make({left_->source->listening_url()});
  ASSERT_EQ(submit(0, 2), SubmitOutcome::accepted);
  until([&] { return committed_.size() == 1; });
  until([&] { return left_->knows(4); });
  EXPECT_EQ(undelivered_, 2U) << "nobody knows whether the slice has them";
}

// As after a loss while its queue is full: the earlier connection comes first.
TEST_F(Forward, a_slice_that_is_connected_and_does_not_answer_yet_is_not_away) {
  left_.emplace();
  make({left_->source->listening_url()});
  slices_read_ = false;
  ASSERT_EQ(submit(0), SubmitOutcome::accepted);
  for (int s = 0; s < 60; ++s) {
    for (int i = 0; i < 10; ++i) turn(100ms);
  }
  EXPECT_THAT(committed_, IsEmpty());
  EXPECT_THAT(log_, ::testing::HasSubstr(
                        "has not answered for 5 s, although it is connected; still waiting"));
  EXPECT_THAT(log_, ::testing::Not(::testing::HasSubstr("no connection to slice 0")));
  slices_read_ = true;
  until_left_has_read(4);
  left_->source->announced(4);
  until([&] { return committed_.size() == 1; });
  EXPECT_EQ(undelivered_, 0U);
  EXPECT_THAT(log_, ::testing::HasSubstr("connected to slice 0"));
}

TEST_F(Forward, who_never_answers_is_named_and_tried_again_after_give_up) {
  const net::Url any = net::Url::parse("tcp://127.0.0.1:0").value();
  const Descriptor listener = net::bind_and_listen(any, net::resolve(any, true).value()).value();
  make({net::address_text(net::local_address(listener.get()))});
  ASSERT_EQ(submit(0), SubmitOutcome::accepted);
  std::vector<Descriptor> accepted;
  const auto accept = [&] {
    net::Address peer;
    Descriptor one = net::accept_from(listener.get(), peer);
    if (one) accepted.push_back(std::move(one));
    return accepted.size();
  };
  until([&] { return accept() == 1; });
  for (int i = 0; i < 90; ++i) turn(100ms); // 9 s
  EXPECT_EQ(accept(), 1U);
  EXPECT_THAT(log_, ::testing::HasSubstr("another program is at that address"));
  for (int i = 0; i < 20; ++i) turn(100ms);
  until([&] { return accept() == 2; });
  EXPECT_THAT(committed_, IsEmpty());
  EXPECT_THAT(sink_->waits_for(),
              EndsWith(", which does not answer and has announced nothing for 11 s"));
}

TEST_F(Forward, a_slice_whose_host_does_not_answer_is_away) {
  left_.emplace();
  make({left_->source->listening_url()});
  ASSERT_EQ(submit(0), SubmitOutcome::accepted);
  until_left_has_read(4);
  for (int i = 0; i < 50; ++i) turn(100ms);
  EXPECT_THAT(log_, IsEmpty());
  unanswered_ = true;
  slices_read_ = false;
  for (int i = 0; i < 12; ++i) turn(100ms);
  EXPECT_THAT(
      log_, ::testing::HasSubstr("(its host or the network does not answer); waiting up to 10 s"));
  EXPECT_THAT(committed_, IsEmpty());
  left_.reset();
  for (int i = 0; i < 130; ++i) turn(100ms);
  EXPECT_THAT(committed_, ElementsAre(0));
  EXPECT_EQ(undelivered_, 4U);
}

// A builder unit that comes back builds one batch after the other, long after the slice's answer.
TEST_F(Forward, a_later_sink_does_not_send_what_the_slice_has_read) {
  left_.emplace();
  const std::string url = left_->source->listening_url();
  make({url});
  for (const EventNumber first : {0U, 4U}) ASSERT_EQ(submit(first), SubmitOutcome::accepted);
  until([&] { return left_->fixture.queue.numbered() && left_->fixture.queue.next_event() == 8; });

  first_ = false;
  make({url});
  const auto connections = [&] { return left_->source->counters().front().value; };
  ASSERT_EQ(submit(0), SubmitOutcome::accepted);
  until([&] { return connections() == 2; });
  for (int i = 0; i < 10; ++i) turn(1ms); // the answer is there
  ASSERT_EQ(submit(4), SubmitOutcome::accepted);
  ASSERT_EQ(submit(8), SubmitOutcome::accepted);
  until([&] { return left_->fixture.queue.next_event() == 12; });
  EXPECT_EQ(left_->fixture.queue.numbers().dropped(wire::DropReason::number_repeat), 0U);
  EXPECT_EQ(left_->fixture.queue.numbers().dropped(wire::DropReason::number_back), 0U);
  left_->source->announced(12);
  until([&] { return committed_.size() == 3; });
  EXPECT_EQ(undelivered_, 0U);
}

// A group that is run once more, from the first number on, while its slices go on.
TEST_F(Forward, what_a_slice_has_from_an_earlier_run_is_not_delivered) {
  left_.emplace();
  const std::string url = left_->source->listening_url();
  make({url});
  deliver_first_batch();
  ASSERT_EQ(submit(4), SubmitOutcome::accepted);
  until_left_has_read(8);
  EXPECT_EQ(undelivered_, 0U);

  make({url});
  for (const EventNumber first : {0U, 4U, 8U}) ASSERT_EQ(submit(first), SubmitOutcome::accepted);
  until_left_has_read(12);
  left_->source->announced(12);
  until([&] { return committed_.size() == 4; });
  EXPECT_THAT(committed_, ElementsAre(0, 0, 4, 8));
  EXPECT_EQ(undelivered_, 8U);
  EXPECT_THAT(log_, ::testing::HasSubstr("has announced events before it got them"));
}

TEST_F(Forward, what_a_slice_builds_before_it_has_got_it_is_not_delivered) {
  left_.emplace();
  make({left_->source->listening_url()});
  deliver_first_batch();
  (void)left_->fixture.queue.give_up_until(10); // it has waited for too long
  left_->source->announced(10);
  for (int i = 0; i < 10; ++i) turn(1ms); // the sink has heard it
  for (const EventNumber first : {4U, 8U}) ASSERT_EQ(submit(first), SubmitOutcome::accepted);
  until_left_has_read(12);
  left_->source->announced(12);
  until([&] { return committed_.size() == 3; });
  EXPECT_EQ(undelivered_, 6U);
  EXPECT_EQ(left_->fixture.queue.numbers().dropped(wire::DropReason::late), 0U)
      << "8 and 9 are not sent";
  EXPECT_THAT(log_, ::testing::HasSubstr("has announced events before it got them"));
}

// What was sent to it before it joined the run again is below what it wants then.
TEST_F(Forward, what_a_slice_has_forgotten_when_it_joins_again_is_not_delivered) {
  left_.emplace();
  const std::string url = left_->source->listening_url();
  make({url});
  deliver_first_batch();
  ASSERT_EQ(submit(4), SubmitOutcome::accepted);
  until_left_has_read(8);
  left_.emplace(url, false);
  until([&] { return left_->source->ready(Time{}); });
  for (const EventNumber first : {8U, 12U}) ASSERT_EQ(submit(first), SubmitOutcome::accepted);
  for (int i = 0; i < 10; ++i) turn(1ms); // these are sent
  left_->join(10);
  until_left_has_read(16);
  EXPECT_EQ(left_->fixture.queue.numbers().written(), 6U);
  left_->source->announced(16);
  until([&] { return committed_.size() == 4; });
  EXPECT_EQ(undelivered_, 6U) << "4 to 9";
}

// Its connection is full, in the middle of an event.
TEST_F(Forward, what_a_slice_announces_while_it_reads_nothing_is_not_sent) {
  left_.emplace();
  make({left_->source->listening_url()});
  deliver_first_batch();
  slices_read_ = false;
  BatchMaker large(testing::make_sources(2), 1024);
  const auto plan = [](EventNumber, SourceId) { return testing::FragmentPlan{.size = 2'000'000}; };
  BuiltBatch batch = large.make(4, {4, 8}, plan);
  ASSERT_EQ(sink_->submit(batch), SubmitOutcome::accepted);
  for (int i = 0; i < 100; ++i) turn(1ms);
  (void)left_->fixture.queue.give_up_until(8);
  left_->source->announced(8);
  slices_read_ = true;
  until([&] { return committed_.size() == 2; });
  until([&] {
    return undelivered_ + left_->fixture.queue.numbers().dropped(wire::DropReason::late) == 4;
  });
  EXPECT_GT(undelivered_, 0U);
  until([&] { return log_.contains("from here, or got them too late"); });
}

TEST_F(Forward, a_later_sink_says_what_a_slice_builds_before_it_has_got_it) {
  left_.emplace();
  const std::string url = left_->source->listening_url();
  make({url});
  ASSERT_EQ(submit(0), SubmitOutcome::accepted);
  until_left_has_read(4);

  first_ = false;
  make({url});
  ASSERT_EQ(submit(0), SubmitOutcome::accepted);
  until([&] { return left_->source->counters().front().value == 2; });
  for (int i = 0; i < 10; ++i) turn(1ms); // the answer is there
  (void)left_->fixture.queue.give_up_until(10); // it has waited for too long
  left_->source->announced(10);
  until([&] { return committed_.size() == 1; });
  for (const EventNumber first : {4U, 8U}) ASSERT_EQ(submit(first), SubmitOutcome::accepted);
  until_left_has_read(12);
  left_->source->announced(12);
  until([&] { return committed_.size() == 3; });
  EXPECT_EQ(undelivered_, 6U) << "4 to 9";
}

TEST_F(Forward, a_sink_that_another_one_has_taken_over_from_ends_at_once) {
  bool over = false;
  left_.emplace();
  make({left_->source->listening_url()}, [&over] { return over; });
  ASSERT_EQ(submit(0), SubmitOutcome::accepted);
  sink_->finish();
  (void)loop_.turn();
  EXPECT_FALSE(sink_->finished());
  over = true;
  until([&] { return sink_->finished(); });
  EXPECT_THAT(committed_, IsEmpty());
  EXPECT_TRUE(maker_.all_home());
}

} // namespace
} // namespace fanin::storage
