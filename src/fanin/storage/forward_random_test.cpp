// A slice that dies, loses its connection, builds without waiting and is away, in any order, and a
// network that damages what goes by: what is delivered is counted exactly.
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "fanin/base/random.hpp"
#include "fanin/net/tcp_socket.hpp"
#include "fanin/storage/testing/forward_fixture.hpp"
#include "fanin/wire/super_fragment.hpp"

namespace fanin::storage {
namespace {

using namespace std::chrono_literals;
using testing::Forward;

// One seed after the other, until a test fails.
template <class Run>
void for_each_seed(Run run) {
  const char* const given = std::getenv("FANIN_SEED");
  const char* const wanted = std::getenv("FANIN_SEEDS");
  const std::uint64_t first = given != nullptr ? std::strtoull(given, nullptr, 10) : 1;
  const std::uint64_t seeds = wanted != nullptr  ? std::strtoull(wanted, nullptr, 10)
                              : given != nullptr ? 1
                                                 : 50;
  for (std::uint64_t seed = first; seed < first + seeds && !::testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE(::testing::Message() << "replay with FANIN_SEED=" << seed);
    run(Random(seed));
  }
}

// A connection through the relay, in one direction.
struct Passage {
  // False: the connection is broken.
  bool pass_on(const Descriptor& from, const Descriptor& to, auto change) {
    if (pending.empty() && !ended) {
      std::array<std::byte, 4096> room;
      const ssize_t got = ::recv(from.get(), room.data(), room.size(), MSG_DONTWAIT);
      if (got < 0 && errno != EAGAIN) return false;
      if (got > 0) {
        pending.assign(room.begin(), room.begin() + got);
        change(std::span(pending));
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
  bool ended = false;
};

// Between a sink and a slice. It changes single bits, fewer than a sender is asked to send again.
class DamagingRelay {
public:
  DamagingRelay(const std::string& slice, Random& random)
      : slice_(address_of(slice)), random_(random) {
    const auto url = net::Url::parse("tcp://127.0.0.1:0").value();
    listener_ = net::bind_and_listen(url, net::resolve(url, true).value()).value();
  }
  [[nodiscard]] std::string url() const {
    return net::address_text(net::local_address(listener_.get()));
  }
  void pass_on() {
    net::Address peer;
    while (Descriptor sink = net::accept_from(listener_.get(), peer)) {
      net::set_stream_options(sink.get(), {});
      connections_.push_back({std::move(sink), net::begin_to_connect(slice_, {}), {}, {}});
    }
    std::erase_if(connections_, [this](Connection& one) {
      const auto change = [this](std::span<std::byte> bytes) { damage(bytes); };
      const bool whole = one.to_slice.pass_on(one.sink, one.slice, change) &&
                         one.to_sink.pass_on(one.slice, one.sink, change);
      return !whole || (one.to_slice.ended && one.to_sink.ended);
    });
  }

private:
  struct Connection {
    Descriptor sink;
    Descriptor slice;
    Passage to_slice;
    Passage to_sink;
  };
  static net::Address address_of(const std::string& url) {
    return net::resolve(net::Url::parse(url).value(), false).value().front();
  }
  void damage(std::span<std::byte> bytes) {
    if (left_ == 0 || !random_.chance(1, 16)) return;
    --left_;
    bytes[random_.below(bytes.size())] ^= std::byte{1} << random_.below(8);
  }

  net::Address slice_;
  Random& random_;
  Descriptor listener_;
  std::vector<Connection> connections_;
  int left_ = 15; // bits to change
};

class ForwardRandom : public Forward {
protected:
  static constexpr EventNumber events = 200;

  // What the slice has when it announces is delivered; what is late there is in its own ledger.
  void announce(EventNumber end) {
    for (EventNumber event = announced_; event < end; ++event) delivered_ += left_->has(event);
    announced_ = std::max(announced_, end);
    left_->source->announced(announced_);
  }
  void give_up(EventNumber count) {
    auto& queue = left_->fixture.queue;
    const EventNumber next = queue.numbered() ? queue.next_event() : 0;
    (void)queue.give_up_until(std::min(events, next + count));
    announce(queue.next_event());
  }
  void count_late() { late_ += left_->fixture.queue.dropped(wire::DropReason::late); }
  void turns(std::uint64_t count) {
    for (std::uint64_t i = 0; i < count; ++i) turn(1ms);
  }
  void die_and_come_back(Random& random) {
    const std::string url = left_->source->listening_url();
    count_late();
    left_.reset();
    turns(random.below(30));
    left_.emplace(url, false);
    turns(random.below(30));
    announced_ = std::min(events, announced_ + random.below(6));
    left_->join(announced_);
  }
  void stay_away(Random& random) {
    const std::string url = left_->source->listening_url();
    count_late();
    left_.reset();
    turn(1ms);
    clock_.advance(10s);
    turns(1 + random.below(10));
    left_.emplace(url, false);
    left_->join(announced_);
  }
  void lose_connection() {
    unanswered_ = true;
    turn(1s);
    unanswered_ = false;
  }
  void run(Random random) {
    left_.emplace();
    make({left_->source->listening_url()});
    committed_.clear();
    announced_ = delivered_ = late_ = undelivered_ = 0;
    for (EventNumber next = 0; committed_.size() < events / 4;) {
      if (next < events && submit(next) == SubmitOutcome::accepted) next += 4;
      turns(random.below(10));
      const auto& queue = left_->fixture.queue;
      const EventNumber read = queue.numbered() ? queue.next_event() : 0;
      switch (random.below(16)) {
      case 0: die_and_come_back(random); break;
      case 1: lose_connection(); break;
      case 2: give_up(random.below(6)); break;
      case 3:
        if (random.chance(1, 4)) stay_away(random);
        break;
      default: announce(std::max(announced_, read - random.below(read + 1))); break;
      }
    }
    count_late();
    EXPECT_EQ(undelivered_ + late_ + delivered_, events);
  }

  EventNumber announced_ = 0;
  std::uint64_t delivered_ = 0;
  std::uint64_t late_ = 0;
};

TEST_F(ForwardRandom, deaths_lost_connections_and_deadlines_of_a_slice_are_counted_exactly) {
  for_each_seed([this](Random random) { run(std::move(random)); });
}

// The network damages what either side says, whatever it is.
class ForwardDamaged : public Forward {
protected:
  static constexpr EventNumber events = 400;

  void run(Random random) {
    left_.emplace();
    DamagingRelay relay(left_->source->listening_url(), random);
    make({relay.url()});
    committed_.clear();
    undelivered_ = 0;
    for (EventNumber next = 0; committed_.size() < events / 4;) {
      relay.pass_on();
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
  void expect_intact(EventNumber event) const {
    ASSERT_TRUE(left_->has(event)) << event;
    const auto& queue = left_->fixture.queue;
    EXPECT_EQ(queue.entry(event).flags(), 0U) << event;
    const auto bytes = source::testing::payload_of(queue, event);
    const wire::SuperHead head(bytes, bytes.size(), 2);
    ASSERT_TRUE(head.good()) << event;
    EXPECT_EQ(head.header().event, event);
  }
};

TEST_F(ForwardDamaged, no_bit_that_changes_on_the_way_costs_an_event) {
  for_each_seed([this](Random random) { run(std::move(random)); });
}

} // namespace
} // namespace fanin::storage
