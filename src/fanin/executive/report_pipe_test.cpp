#include "fanin/executive/report_pipe.hpp"

#include <unistd.h>

#include <string>
#include <thread>

#include <gtest/gtest.h>

namespace fanin::executive {
namespace {

json::Value report(const char* kind, std::size_t size) {
  return json::Object{{"report", kind}, {"text", std::string(size, 'x')}};
}

TEST(ReportPipe, the_result_and_the_end_are_not_lost_where_nobody_reads_for_long) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const Descriptor to_read(ends[0]);
  std::string received;
  std::thread reader;
  {
    ReportPipe pipe(ends[1]);
    for (int i = 0; i < 100; ++i) pipe.write(report("log", 100'000));
    for (const char* kind : {"progress", "summary", "usage"}) pipe.write(report(kind, 1));
    pipe.write(report("result", 1));
    pipe.write(report("end", 1));
    reader = std::thread([&] {
      char buffer[65536];
      for (ssize_t got = 1; got > 0;) {
        got = read(to_read.get(), buffer, sizeof buffer);
        if (got > 0) received.append(buffer, static_cast<std::size_t>(got));
      }
    });
  }
  reader.join();
  EXPECT_LT(received.size(), 6U << 20);
  for (const char* kind : {"\"progress\"", "\"summary\"", "\"usage\""})
    EXPECT_EQ(received.find(kind), std::string::npos);
  EXPECT_NE(received.find("\"result\""), std::string::npos);
  EXPECT_TRUE(received.ends_with(report("end", 1).dump() + "\n"));
}

} // namespace
} // namespace fanin::executive
