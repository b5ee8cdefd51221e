// What is to be measured is told to other hosts, which read it as it was meant.
#include "fanin/bench/spec.hpp"

#include <gtest/gtest.h>

namespace fanin::bench {
namespace {

using builder::shaping::Policy;

Spec nxn(Policy policy) {
  Spec spec;
  spec.pattern = Pattern::nxn;
  spec.url = *net::Url::parse("tcp://10.1.2.3:0");
  spec.size = 1024;
  spec.senders = spec.receivers = processes_max;
  spec.shaping.policy = policy;
  return spec;
}

TEST(BenchSpec, is_read_as_it_was_said_for_as_many_processes_as_there_may_be) {
  for (const Policy policy : {Policy::none, Policy::tokens, Policy::barrel_shifter}) {
    Spec spec = nxn(policy);
    if (spec.shaping.on()) spec.shaping.window = spec.shaping.window_usual(spec.senders);
    const auto read = Spec::from_json(spec.to_json());
    ASSERT_TRUE(read) << read.error().text;
    EXPECT_EQ(read->shaping.policy, policy);
    EXPECT_EQ(read->shaping.window, spec.shaping.window);
    EXPECT_EQ(read->senders, processes_max);
    EXPECT_EQ(read->url.text(), spec.url.text());
  }
}

TEST(BenchSpec, a_window_in_which_not_all_can_send_is_refused) {
  EXPECT_FALSE(Spec::from_json(nxn(Policy::random).to_json()));
}

} // namespace
} // namespace fanin::bench
