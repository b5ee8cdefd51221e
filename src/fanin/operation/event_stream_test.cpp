#include "fanin/operation/event_stream.hpp"

#include <gtest/gtest.h>

#include <string>

namespace fanin::operation {
namespace {

const json::Value snapshot = json::Object{{"state", "now"}};

json::Value number(int value) { return json::Object{{"n", value}}; }

TEST(EventStreams, begin_with_what_is_so_now_and_continue_with_what_happens) {
  EventStream events(100);
  events.add("log", number(1));
  const HttpStream stream = events.from({}, snapshot);
  EXPECT_EQ(stream(), "id: 100\nevent: status\ndata: {\"state\":\"now\"}\n\n");
  EXPECT_EQ(stream(), "");
  events.add("log", number(2));
  events.add("log", number(3));
  EXPECT_EQ(stream(),
            "id: 101\nevent: log\ndata: {\"n\":2}\n\nid: 102\nevent: log\ndata: {\"n\":3}\n\n");
  EXPECT_EQ(stream(), "");
}

TEST(EventStreams, continue_after_the_last_event_that_somebody_has) {
  EventStream events(100);
  for (int i = 0; i < 5; ++i) events.add("log", number(i));
  EXPECT_EQ(events.from(103, snapshot)(), "id: 104\nevent: log\ndata: {\"n\":4}\n\n");
  EXPECT_EQ(events.from(104, snapshot)(), "");
}

TEST(EventStreams, begin_anew_where_the_last_event_is_not_known) {
  EventStream events(100);
  events.add("log", number(0));
  for (const std::uint64_t last : {7U, 98U, 101U, 4'000'000U})
    EXPECT_TRUE(events.from(last, snapshot)().contains("\"now\"")) << last;
  EventStream full(1);
  for (std::size_t i = 0; i <= EventStream::events_max + 1; ++i) full.add("log", number(1));
  EXPECT_TRUE(full.from(1, snapshot)().contains("\"now\""));
  EXPECT_FALSE(full.from(2, snapshot)().contains("\"now\""));
}

TEST(EventStreams, say_that_they_live_when_nothing_happens) {
  EventStream events(1);
  const HttpStream stream = events.from({}, snapshot);
  (void)stream();
  events.keep_alive();
  EXPECT_EQ(stream(), ": \n\n");
  EXPECT_EQ(stream(), "");
}

TEST(EventStreams, one_that_was_too_slow_goes_on_with_what_is_kept) {
  EventStream events(1);
  const HttpStream stream = events.from({}, snapshot);
  (void)stream();
  for (std::size_t i = 0; i < EventStream::events_max + 10; ++i) events.add("log", number(1));
  EXPECT_TRUE(stream().starts_with("id: 11\n"));
}

} // namespace
} // namespace fanin::operation
