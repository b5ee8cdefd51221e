#include "fanin/builder/building/status_reporter.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include <fmt/format.h>

#include "fanin/builder/testing/conversation.hpp"
#include "fanin/builder/testing/scripted_sink.hpp"

namespace fanin::builder {
namespace {

class Statuses : public ::testing::Test {
protected:
  bool report_files() { return status_.report_files(evm_.client(), sink_); }
  bool send() { return status_.send<wire::Status>(evm_.client(), sink_, counters_); }
  // The names of files, and of each status in brackets what is waited for.
  std::vector<std::string> said() {
    std::vector<std::string> said;
    evm_.client().flush();
    evm_.network().for_each_said(0, [&](wire::MessageType type, wire::MessageReader& reader) {
      wire::NewFile file;
      wire::Status status;
      if (type == wire::MessageType::new_file) {
        EXPECT_TRUE(reader.read(file));
        said.emplace_back(reader.text(file.text_size));
      } else if (type == wire::MessageType::status) {
        EXPECT_TRUE(reader.read(status));
        said.push_back(fmt::format("({})", reader.text(status.counters.waits_for_size)));
        EXPECT_EQ(status.counters.bytes, 42U);
      }
      EXPECT_TRUE(reader.ok());
    });
    return said;
  }
  using Said = std::vector<std::string>;

  testing::Conversation evm_;
  testing::Disk disk_;
  testing::ScriptedSink sink_{disk_};
  wire::NodeCounters counters_{.bytes = 42};
  StatusReporter status_;
};

TEST_F(Statuses, each_file_is_named_once) {
  EXPECT_TRUE(report_files());
  EXPECT_TRUE(said().empty()); // there is none
  disk_.files = {"a", "b"};
  EXPECT_TRUE(report_files());
  EXPECT_TRUE(report_files());
  disk_.files.emplace_back("c");
  EXPECT_TRUE(report_files());
  EXPECT_EQ(said(), (Said{"a", "b", "c"}));
}

TEST_F(Statuses, new_files_are_named_before_the_counters) {
  disk_.files = {"a"};
  disk_.waits_for = "a filter unit to start";
  EXPECT_TRUE(send());
  EXPECT_TRUE(send());
  EXPECT_EQ(said(), (Said{"a", "(a filter unit to start)", "(a filter unit to start)"}));
}

TEST_F(Statuses, files_of_a_new_sink_are_named_from_the_first_one) {
  disk_.files = {"a"};
  EXPECT_TRUE(report_files());
  status_.clear();
  disk_.files = {"b"};
  EXPECT_TRUE(report_files());
  EXPECT_EQ(said(), (Said{"a", "b"}));
}

TEST_F(Statuses, a_long_text_of_what_the_sink_waits_for_is_cut) {
  disk_.waits_for = std::string(10000, 'x');
  EXPECT_TRUE(send());
  EXPECT_EQ(said(), Said{"(" + std::string(evm_.client().room_max() / 4, 'x') + ")"});
}

TEST_F(Statuses, names_for_which_there_is_no_room_follow_later) {
  const std::string half(evm_.client().room_max() / 2, 'a');
  disk_.files.assign(40, half);
  EXPECT_FALSE(send());
  const std::size_t first = said().size();
  EXPECT_LT(first, disk_.files.size());
  while (!report_files()) evm_.acknowledge();
  EXPECT_TRUE(send());
  Said all = disk_.files;
  all.emplace_back("()");
  EXPECT_TRUE(said() == all);
}

TEST_F(Statuses, nothing_counts_as_said_while_there_is_no_room) {
  disk_.files = {"a"};
  evm_.fill();
  EXPECT_FALSE(report_files());
  EXPECT_FALSE(send());
  evm_.acknowledge();
  EXPECT_TRUE(report_files());
  EXPECT_EQ(said(), Said{"a"});
}

} // namespace
} // namespace fanin::builder
