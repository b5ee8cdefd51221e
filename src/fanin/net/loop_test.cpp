#include "fanin/net/loop.hpp"

#include <fcntl.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <csignal>
#include <thread>

#include <gtest/gtest.h>

#include "fanin/base/random.hpp"

namespace fanin::net {
namespace {

using namespace std::chrono_literals;

TEST(Loop, timers_fire_in_order_of_their_deadlines) {
  VirtualClock clock;
  Loop loop(clock);
  Random random(5);
  std::vector<std::int64_t> fired;
  std::vector<std::unique_ptr<Timer>> timers;
  for (int i = 0; i < 500; ++i) {
    const auto at = static_cast<std::int64_t>(random.below(100'000));
    timers.push_back(std::make_unique<Timer>([&fired, at] { fired.push_back(at); }));
    timers.back()->start(loop, Time{Duration{at}});
  }
  for (std::size_t i = 0; i < timers.size(); i += 3) timers[i]->cancel();
  for (std::size_t i = 1; i < timers.size(); i += 3) timers[i]->start(loop, timers[i]->deadline());
  while (loop.next_deadline() != never) {
    clock.advance_to(loop.next_deadline());
    EXPECT_TRUE(loop.turn());
  }
  EXPECT_EQ(fired.size(), 333U);
  EXPECT_TRUE(std::is_sorted(fired.begin(), fired.end()));
}

TEST(Loop, a_timer_fires_once_and_not_before_its_deadline) {
  VirtualClock clock;
  Loop loop(clock);
  int fired = 0;
  Timer timer([&] { ++fired; });
  timer.start(loop, Time{10us});
  EXPECT_FALSE(loop.turn());
  clock.advance(10us);
  EXPECT_TRUE(loop.turn());
  EXPECT_FALSE(timer.active());
  EXPECT_FALSE(loop.turn());
  EXPECT_EQ(fired, 1);
}

TEST(Loop, a_timer_that_restarts_itself_in_the_past_does_not_hold_the_turn) {
  VirtualClock clock;
  Loop loop(clock);
  int fired = 0;
  Timer timer([&] {
    ++fired;
    timer.start(loop, loop.now());
  });
  timer.start(loop, loop.now());
  EXPECT_TRUE(loop.turn());
  EXPECT_EQ(fired, 1);
}

TEST(Loop, a_timer_outlives_its_loop) {
  VirtualClock clock;
  Timer timer([] {});
  {
    Loop loop(clock);
    timer.start(loop, never);
  }
  EXPECT_FALSE(timer.active());
}

class Counting final : public Service {
public:
  explicit Counting(std::function<bool()> work) : work_(std::move(work)) {}
  bool poll() override {
    ++polls;
    return work_();
  }
  int polls = 0;

private:
  std::function<bool()> work_;
};

TEST(Loop, a_service_may_leave_while_services_are_polled) {
  VirtualClock clock;
  Loop loop(clock);
  Counting second([] { return false; });
  Counting first([&] {
    loop.remove(second);
    return true;
  });
  loop.add(first);
  loop.add(second);
  EXPECT_TRUE(loop.turn());
  EXPECT_EQ(second.polls, 0);
  loop.remove(first);
  EXPECT_FALSE(loop.turn());
  EXPECT_EQ(first.polls, 1);
}

class OnDescriptor final : public Service {
public:
  OnDescriptor() : descriptor_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {}
  ~OnDescriptor() override { ::close(descriptor_); }
  OnDescriptor(const OnDescriptor&) = delete;
  OnDescriptor& operator=(const OnDescriptor&) = delete;
  bool poll() override {
    std::uint64_t count = 0;
    if (::read(descriptor_, &count, sizeof count) != sizeof count) return false;
    loop->stop();
    return true;
  }
  [[nodiscard]] int descriptor() const override { return descriptor_; }
  void signal() const {
    const std::uint64_t one = 1;
    ASSERT_EQ(::write(descriptor_, &one, sizeof one), static_cast<ssize_t>(sizeof one));
  }
  Loop* loop = nullptr;

private:
  int descriptor_;
};

TEST(Loop, run_waits_for_timers_services_and_other_threads) {
  const MonotonicClock clock;
  Loop loop(clock);
  Timer timer([&] { loop.stop(); });
  timer.start(loop, loop.now() + 300us);
  loop.run();
  EXPECT_GE(clock.now(), timer.deadline());

  OnDescriptor service;
  service.loop = &loop;
  loop.add(service);
  std::thread worker([&] { service.signal(); });
  loop.run();
  worker.join();
  loop.remove(service);

  std::thread stopper([&] {
    loop.stop();
    loop.wake();
  });
  loop.run();
  stopper.join();
}

TEST(Loop, what_the_kernel_cannot_watch_is_looked_at_all_the_same) {
  class Unwatchable final : public Service {
  public:
    explicit Unwatchable(Loop& of) : loop(of) {}
    bool poll() override {
      if (++polls == 100) loop.stop();
      return false;
    }
    [[nodiscard]] int descriptor() const override { return file.get(); }
    Loop& loop;
    Descriptor file{::open("/dev/null", O_RDONLY | O_CLOEXEC)};
    int polls = 0;
  };
  const MonotonicClock clock;
  Loop loop(clock);
  Unwatchable service(loop);
  loop.add(service);
  loop.run();
  EXPECT_EQ(service.polls, 100);
  loop.remove(service);
}

class LoopDeathTest : public ::testing::Test {
protected:
  // The other style runs a loop in a process that was forked, which is not allowed.
  LoopDeathTest() { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
  ~LoopDeathTest() override { GTEST_FLAG_SET(death_test_style, "fast"); }
};

// Else it would turn for ever, without hearing anything, and nobody would know.
TEST_F(LoopDeathTest,
       that_cannot_wait_any_more_since_its_descriptors_were_closed_ends_the_process) {
  MonotonicClock clock;
  Loop loop(clock);
  Timer close_all([] {
    for (int descriptor = 3; descriptor < 1024; ++descriptor) (void)close(descriptor);
  });
  Timer stop([&] { loop.stop(); });
  close_all.start(loop, clock.now());
  stop.start(loop, clock.now() + 10s);
  EXPECT_DEATH(loop.run(), "errno != EBADF");
}

TEST_F(LoopDeathTest, a_turn_in_a_handler_ends_the_process_and_says_what_to_do_instead) {
  VirtualClock clock;
  Loop loop(clock);
  const auto in_a_handler = [&](const std::function<void()>& call) {
    Timer timer(call);
    timer.start(loop, clock.now());
    loop.turn();
  };
  const auto* const remedy = "in a callback: return, and go on in on_writable";
  EXPECT_DEATH(in_a_handler([&] { loop.turn(); }), remedy);
  EXPECT_DEATH(in_a_handler([&] { loop.run(); }), remedy);
}

TEST(Loop, does_not_run_in_a_process_that_was_forked_after_it_was_made) {
  const MonotonicClock clock;
  Loop loop(clock);
  EXPECT_DEATH(loop.run(), "after fork\\(\\): make a loop in this process");
}

TEST(Loop, a_stop_before_the_run_counts) {
  const MonotonicClock clock;
  for (const WaitPolicy policy : {WaitPolicy::block, WaitPolicy::poll}) {
    Loop loop(clock, policy);
    loop.wake();
    loop.stop();
    loop.run();
  }
}

} // namespace
} // namespace fanin::net
