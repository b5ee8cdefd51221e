#include <future>

#include <gtest/gtest.h>

#include "fanin/net/host_resolver.hpp"

namespace fanin::net {
namespace {

using namespace std::chrono_literals;
using Question = Resolver::Question;
using Found = Resolver::Found;

TEST(Resolver, numbers_and_the_empty_name_need_nobody) {
  BlockingResolver resolver([](const std::string&) -> Found {
    ADD_FAILURE() << "it was asked";
    return fail(ErrorKind::not_found, "");
  });
  Question question([](const Found&) { FAIL() << "it was answered later"; });
  for (const auto& [host, address] :
       {std::pair{"10.1.2.3", "10.1.2.3"}, {"::1", "::1"}, {"", "127.0.0.1"}}) {
    const auto found = resolver.ask(host, question);
    ASSERT_TRUE(found && *found);
    EXPECT_EQ((*found)->front().host(), address);
  }
}

TEST(Resolver, a_name_is_asked_for_once_and_again_after_it_was_forgotten) {
  VirtualClock clock;
  Loop loop(clock);
  ScriptedResolver resolver(loop);
  resolver.take(1ms);
  int answers = 0;
  const auto count = [&](const Found& found) { answers += found ? 1 : 100; };
  Question first(count);
  Question second(count);
  Question third(count);
  EXPECT_FALSE(resolver.ask("evm", first));
  EXPECT_FALSE(resolver.ask("evm", second));
  EXPECT_FALSE(resolver.ask("bu0", third));
  second.withdraw();
  clock.advance(1ms);
  loop.turn();
  EXPECT_EQ(answers, 2);
  EXPECT_EQ(resolver.asked(), 2U);
  EXPECT_TRUE(resolver.ask("evm", first).value());
  resolver.forget("evm");
  EXPECT_FALSE(resolver.ask("evm", first));
  EXPECT_EQ(resolver.asked(), 3U);
}

TEST(Resolver, what_was_known_is_the_answer_while_the_name_service_fails) {
  VirtualClock clock;
  Loop loop(clock);
  ScriptedResolver resolver(loop);
  Question question([](const Found&) {});
  resolver.fail(ErrorKind::disconnected);
  EXPECT_FALSE(resolver.ask("evm", question).value());
  resolver.fail({});
  EXPECT_TRUE(resolver.ask("evm", question).value());
  resolver.fail(ErrorKind::not_found);
  resolver.forget("evm");
  EXPECT_TRUE(resolver.ask("evm", question).value());
  EXPECT_TRUE(resolver.ask("evm", question).value());
  EXPECT_EQ(resolver.asked(), 4U);
}

TEST(Resolver, an_answer_may_end_those_who_asked_and_ask_again) {
  VirtualClock clock;
  Loop loop(clock);
  ScriptedResolver resolver(loop);
  resolver.take(1ms);
  resolver.fail(ErrorKind::disconnected);
  std::unique_ptr<Question> second;
  Question first([&](const Found&) {
    second.reset();
    EXPECT_FALSE(resolver.ask("evm", first));
  });
  second = std::make_unique<Question>([](const Found&) { FAIL() << "it was withdrawn"; });
  EXPECT_FALSE(resolver.ask("evm", first));
  EXPECT_FALSE(resolver.ask("evm", *second));
  clock.advance(1ms);
  loop.turn();
  EXPECT_TRUE(first.waits());
  EXPECT_EQ(resolver.asked(), 2U);
}

TEST(HostResolver, a_name_service_that_hangs_holds_up_neither_the_loop_nor_its_end) {
  MonotonicClock clock;
  Loop loop(clock);
  std::promise<void> begun;
  std::promise<void> release;
  std::promise<void> over;
  {
    HostResolver resolver(loop, [&](const std::string&) -> Found {
      begun.set_value();
      release.get_future().wait();
      over.set_value();
      return fail(ErrorKind::disconnected, "");
    });
    Question question([](const Found&) { FAIL() << "it was answered"; });
    EXPECT_FALSE(loop.resolver().ask("evm", question));
    begun.get_future().wait();
    EXPECT_FALSE(loop.turn());
  }
  release.set_value();
  over.get_future().wait(); // what it uses is still there
}

TEST(HostResolver, its_answers_wake_a_loop_that_sleeps) {
  MonotonicClock clock;
  Loop loop(clock);
  HostResolver resolver(loop, [](const std::string& host) -> Found {
    if (host == "nobody") return fail(ErrorKind::not_found, "no such host");
    return resolve_host("127.0.0.2");
  });
  std::vector<std::string> heard;
  const auto hear = [&](const Found& found) {
    heard.push_back(found ? found->front().host() : found.error().text);
    if (heard.size() == 2) loop.stop();
  };
  Question evm(hear);
  Question nobody(hear);
  EXPECT_FALSE(loop.resolver().ask("evm", evm));
  EXPECT_FALSE(loop.resolver().ask("nobody", nobody));
  loop.run();
  EXPECT_EQ(heard, (std::vector<std::string>{"127.0.0.2", "no such host"}));
}

} // namespace
} // namespace fanin::net
