// A slice that dies, loses its connection, builds without waiting and is away, in any order: what
// is delivered is counted exactly.
#include <gtest/gtest.h>

#include <algorithm>
#include <utility>

#include "fanin/base/random.hpp"
#include "fanin/storage/testing/forward_fixture.hpp"

namespace fanin::storage {
namespace {

using namespace std::chrono_literals;
using testing::Forward;

class ForwardRandom : public Forward {
protected:
  static constexpr EventNumber events = 200;

  // What the slice has when it announces is delivered; what is late there is in its own ledger.
  void announce(EventNumber end) {
    for (EventNumber event = announced_; event < end; ++event) delivered_ += left_->has(event);
    announced_ = std::max(announced_, end);
    left_->source->announced(announced_);
    left_->read(); // which says so
  }
  void give_up(EventNumber count) {
    auto& queue = left_->fixture.queue;
    const EventNumber next = queue.numbered() ? queue.next_event() : 0;
    (void)queue.give_up_until(std::min(events, next + count));
    announce(queue.next_event());
  }
  void count_late() { late_ += left_->fixture.queue.numbers().dropped(wire::DropReason::late); }
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
  testing::for_each_seed([this](Random random) { run(std::move(random)); });
}

} // namespace
} // namespace fanin::storage
