// A network that damages what a sink and a slice say to each other, whatever it is.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <functional>
#include <ranges>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "fanin/base/random.hpp"
#include "fanin/net/tcp_socket.hpp"
#include "fanin/source/own_checksum.hpp"
#include "fanin/storage/testing/forward_fixture.hpp"
#include "fanin/wire/super_fragment.hpp"

namespace fanin::storage {
namespace {

using namespace std::chrono_literals;
using testing::Forward;
using ::testing::HasSubstr;
using testing::merged;

// One direction of a connection through the relay.
struct Passage {
  // False: the connection is broken.
  bool pass_on(const Descriptor& from, const Descriptor& to, auto change) {
    if (pending.empty() && !ended) {
      std::array<std::byte, 4096> room;
      const ssize_t got = ::recv(from.get(), room.data(), room.size(), MSG_DONTWAIT);
      if (got < 0 && errno != EAGAIN) return false;
      if (got > 0) {
        pending.assign(room.begin(), room.begin() + got);
        change(offset, std::span(pending));
        offset += pending.size();
      }
      ended = got == 0;
      if (ended) ::shutdown(to.get(), SHUT_WR);
    }
    if (pending.empty()) return true;
    const ssize_t sent =
        ::send(to.get(), pending.data(), pending.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0) return errno == EAGAIN;
    pending.erase(pending.begin(), pending.begin() + sent);
    return true;
  }
  std::vector<std::byte> pending;
  std::size_t offset = 0; // bytes that have come
  bool ended = false;
};

// Between a sink and a slice.
class Relay {
public:
  struct Place {
    std::size_t connection = 0; // from 0
    bool to_slice = false;
    std::size_t offset = 0; // of the bytes in their stream
  };
  using Change = std::function<void(Place, std::span<std::byte>)>;

  Relay(const std::string& slice, Change change)
      : slice_(address_of(slice)), change_(std::move(change)) {
    const auto url = net::Url::parse("tcp://127.0.0.1:0").value();
    listener_ = net::bind_and_listen(url, net::resolve(url, true).value()).value();
  }
  [[nodiscard]] std::string url() const {
    return net::address_text(net::local_address(listener_.get()));
  }
  [[nodiscard]] std::size_t connections() const { return accepted_; }
  void pass_on() {
    net::Address peer;
    while (Descriptor sink = net::accept_from(listener_.get(), peer)) {
      net::set_stream_options(sink.get(), {});
      connections_.push_back(
          {accepted_++, std::move(sink), net::begin_to_connect(slice_, {}), {}, {}});
    }
    std::erase_if(connections_, [this](Connection& one) {
      const auto change = [&](bool to_slice) {
        return [this, &one, to_slice](std::size_t offset, std::span<std::byte> bytes) {
          change_({one.number, to_slice, offset}, bytes);
        };
      };
      const bool whole = one.to_slice.pass_on(one.sink, one.slice, change(true)) &&
                         one.to_sink.pass_on(one.slice, one.sink, change(false));
      if (!whole) {
        net::set_reset_on_close(one.sink);
        net::set_reset_on_close(one.slice);
      }
      return !whole || (one.to_slice.ended && one.to_sink.ended);
    });
  }
  void cut() { connections_.clear(); }

private:
  struct Connection {
    std::size_t number = 0;
    Descriptor sink;
    Descriptor slice;
    Passage to_slice;
    Passage to_sink;
  };
  static net::Address address_of(const std::string& url) {
    return net::resolve(net::Url::parse(url).value(), false).value().front();
  }

  net::Address slice_;
  Change change_;
  Descriptor listener_;
  std::vector<Connection> connections_;
  std::size_t accepted_ = 0;
};

class ForwardDamaged : public Forward {
protected:
  void make_relay(Relay::Change change) {
    left_.emplace();
    relay_.emplace(left_->source->listening_url(), std::move(change));
    make({relay_->url()});
  }
  template <class Done>
  void relay_until(Done done) {
    until([&] {
      relay_->pass_on();
      return done();
    });
  }
  void read_until(EventNumber end) {
    const auto& queue = left_->fixture.queue;
    relay_until([&] { return queue.numbered() && queue.next_event() == end; });
  }
  [[nodiscard]] std::uint64_t counter(std::string_view name) const {
    for (const auto& counter : left_->source->counters()) {
      if (counter.name == name) return counter.value;
    }
    return 0;
  }
  void expect_intact(EventNumber event) const {
    ASSERT_TRUE(left_->has(event)) << event;
    const auto& queue = left_->fixture.queue;
    EXPECT_EQ(queue.entry(event).flags(), 0U) << event;
    const auto bytes = source::testing::payload_of(queue, event);
    const wire::SuperHead head(bytes, bytes.size(), 2);
    ASSERT_TRUE(head.good()) << event;
    EXPECT_EQ(head.header().event, event);
  }

  std::optional<Relay> relay_;
};

constexpr std::size_t message_size = sizeof(source::CheckedBytes<source::ReceiveReply>);

// Without its checksum the answer would say that events were read which were never sent.
TEST_F(ForwardDamaged, an_answer_whose_number_changed_costs_nothing) {
  make_relay([](Relay::Place place, std::span<std::byte> bytes) {
    if (place.connection == 1 && !place.to_slice && place.offset == 0) bytes[8] ^= std::byte{8};
  });
  ASSERT_EQ(submit(0), SubmitOutcome::accepted);
  read_until(4);
  relay_->cut();
  ASSERT_EQ(submit(4), SubmitOutcome::accepted);
  read_until(8);
  EXPECT_EQ(relay_->connections(), 3U);
  for (EventNumber event = 0; event < 8; ++event) expect_intact(event);
}

TEST_F(ForwardDamaged, an_acknowledgement_whose_number_changed_costs_nothing) {
  make_relay([](Relay::Place place, std::span<std::byte> bytes) {
    if (place.connection == 0 && !place.to_slice && place.offset >= message_size)
      bytes[13] ^= std::byte{1};
  });
  ASSERT_EQ(submit(0), SubmitOutcome::accepted);
  read_until(4);
  left_->source->announced(2);
  relay_until([&] { return relay_->connections() == 2; });
  EXPECT_THAT(log_, HasSubstr("what it sent was damaged on the way"));
  ASSERT_EQ(submit(4), SubmitOutcome::accepted);
  read_until(8);
  left_->source->announced(8);
  relay_until([&] { return committed_.size() == 2; });
  EXPECT_EQ(undelivered_, 0U);
}

// What follows the run is told once more.
TEST_F(ForwardDamaged, a_pause_that_changed_is_said_again) {
  bool leaves = false;
  make_relay([&](Relay::Place place, std::span<std::byte> bytes) {
    if (leaves && place.connection == 0 && place.to_slice) bytes[9] ^= std::byte{1};
  });
  ASSERT_EQ(submit(0), SubmitOutcome::accepted);
  read_until(4);
  left_->source->announced(4);
  relay_until([&] { return committed_.size() == 1; });
  leaves = true;
  sink_->run_ended();
  sink_->finish();
  relay_until([&] { return sink_->finished(); });
  EXPECT_EQ(counter("damaged"), 1U);
  EXPECT_EQ(left_->last, source::ReadState::paused);
}

// The way may change the same bytes each time. Nobody may wait for ever then, nor fill the log.
TEST_F(ForwardDamaged, a_header_that_changes_each_time_is_given_up) {
  const source::ReceiveHeader header{.source = merged, .event = 5};
  const auto event_5 = std::as_bytes(std::span(&header, 1)).subspan(4, 12);
  make_relay([&](Relay::Place place, std::span<std::byte> bytes) {
    if (!place.to_slice) return;
    const auto found = std::ranges::search(bytes, event_5);
    if (!found.empty()) found.front() ^= std::byte{1};
  });
  ASSERT_EQ(submit(0), SubmitOutcome::accepted);
  ASSERT_EQ(submit(4), SubmitOutcome::accepted);
  read_until(5);
  left_->source->announced(4);
  relay_until([&] { return committed_.size() == 2; });
  EXPECT_EQ(undelivered_, 4U) << "4 is there, but not announced";
  EXPECT_THAT(log_, HasSubstr("is given up"));
  EXPECT_LT(std::ranges::count(log_, '\n'), 100);
  EXPECT_LT(relay_->connections(), 50U);
  relay_until([&] { return last_line().starts_with("connected to slice 0"); });
  ASSERT_EQ(submit(8), SubmitOutcome::accepted);
  read_until(12);
}

// Its place and its bytes are the same over each connection.
TEST_F(ForwardDamaged, an_acknowledgement_that_changes_each_time_is_given_up) {
  make_relay([&](Relay::Place place, std::span<std::byte> bytes) {
    if (!place.to_slice && place.offset + bytes.size() > message_size) bytes.back() ^= std::byte{1};
  });
  ASSERT_EQ(submit(0), SubmitOutcome::accepted);
  read_until(4);
  left_->source->announced(4);
  relay_until([&] { return committed_.size() == 1; });
  EXPECT_EQ(undelivered_, 4U) << "it is not known that they are there";
  EXPECT_LT(relay_->connections(), 50U);
}

TEST_F(ForwardDamaged, a_pause_that_changes_each_time_ends_the_run_late) {
  const source::ReceiveHeader header{.kind = source::ReceiveKind::pause, .source = merged};
  const auto pause = std::as_bytes(std::span(&header, 1));
  make_relay([&](Relay::Place place, std::span<std::byte> bytes) {
    if (!place.to_slice) return;
    const auto found = std::ranges::search(bytes, pause);
    if (!found.empty()) found.back() ^= std::byte{1};
  });
  ASSERT_EQ(submit(0), SubmitOutcome::accepted);
  read_until(4);
  left_->source->announced(4);
  relay_until([&] { return committed_.size() == 1; });
  sink_->run_ended();
  sink_->finish();
  const Time begin = clock_.now();
  relay_until([&] { return sink_->finished(); });
  EXPECT_LE(clock_.now() - begin, 10s);
  EXPECT_LT(relay_->connections(), 30U);
  EXPECT_LT(std::ranges::count(log_, '\n'), 60);
}

// A slice that joins its run again closes the connection once.
TEST_F(ForwardDamaged, a_slice_that_was_away_for_almost_too_long_gets_all) {
  make_relay([](Relay::Place, std::span<std::byte>) {});
  ASSERT_EQ(submit(0), SubmitOutcome::accepted);
  read_until(4);
  left_->source->announced(4);
  relay_until([&] { return committed_.size() == 1; });
  ASSERT_EQ(submit(4), SubmitOutcome::accepted);
  const std::string url = left_->source->listening_url();
  left_.reset();
  relay_until([&] { return log_.contains("no connection to slice 0"); });
  clock_.advance(9500ms);
  left_.emplace(url, false);
  relay_until([&] { return log_.contains("connected to slice 0"); });
  clock_.advance(1s);
  left_->join(2);
  left_->source->announced(4);
  relay_until([&] { return left_->has(7); });
  left_->source->announced(8);
  relay_until([&] { return committed_.size() == 2; });
  EXPECT_EQ(undelivered_, 0U) << log_;
}

TEST_F(ForwardDamaged, who_closes_without_an_answer_may_be_another_version) {
  make_relay([](Relay::Place, std::span<std::byte>) {});
  ASSERT_EQ(submit(0), SubmitOutcome::accepted);
  slices_read_ = false;
  relay_until([&] { return relay_->connections() == 1; });
  relay_->cut();
  relay_until([&] { return log_.contains("no connection to slice 0"); });
  EXPECT_THAT(log_, HasSubstr("its version of fanin may be another one"));
}

class ForwardDamagedRandom : public ForwardDamaged {
protected:
  static constexpr EventNumber events = 400;

  void run(Random random) {
    std::array<std::size_t, 2> until_next{random.below(2000), random.below(200)};
    // For one fragment three times at most: fanin asks for it no more often.
    std::array<int, 2> left{3, 12};
    make_relay([&](Relay::Place place, std::span<std::byte> bytes) {
      const std::size_t direction = place.to_slice ? 0 : 1;
      std::size_t& next = until_next[direction];
      if (next >= bytes.size()) {
        next -= bytes.size();
      } else if (left[direction] > 0) {
        bytes[next] ^= std::byte{1} << random.below(8);
        next = random.below(place.to_slice ? 10000 : 400);
        --left[direction];
      }
    });
    committed_.clear();
    undelivered_ = 0;
    const Time end = clock_.now() + 1h;
    for (EventNumber next = 0; committed_.size() < events / 4;) {
      ASSERT_LT(clock_.now(), end) << log_;
      relay_->pass_on();
      if (next < events && random.chance(1, 4) && submit(next) == SubmitOutcome::accepted)
        next += 4;
      turn(10ms);
      const auto& queue = left_->fixture.queue;
      const EventNumber read = queue.numbered() ? queue.next_event() : 0;
      if (random.chance(1, 4)) left_->source->announced(read - random.below(read + 1) / 8);
    }
    EXPECT_EQ(undelivered_, 0U);
    for (EventNumber event = 0; event < events; ++event) expect_intact(event);
  }
};

TEST_F(ForwardDamagedRandom, no_bit_that_changes_on_the_way_costs_an_event) {
  testing::for_each_seed([this](Random random) { run(std::move(random)); });
}

} // namespace
} // namespace fanin::storage
