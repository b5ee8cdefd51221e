#include "fanin/builder/building/status_reporter.hpp"

#include <gtest/gtest.h>

#include <string>

#include "fanin/builder/testing/conversation.hpp"
#include "fanin/builder/testing/scripted_sink.hpp"

namespace fanin::builder {
namespace {

class Statuses : public ::testing::Test {
protected:
  bool report_files() { return status_.report_files(evm_.client(), sink_, counters_); }
  // What followed the counters of each status.
  std::vector<std::string> texts() {
    std::vector<std::string> texts;
    evm_.client().flush();
    evm_.network().for_each_said(0, [&](wire::MessageType type, wire::MessageReader& reader) {
      wire::Status status;
      if (type != wire::MessageType::status) return;
      EXPECT_TRUE(reader.read(status));
      texts.emplace_back(reader.text(status.counters.text_size));
      EXPECT_TRUE(reader.ok());
      EXPECT_EQ(status.counters.bytes, 42U);
    });
    return texts;
  }
  using Texts = std::vector<std::string>;

  testing::Conversation evm_;
  testing::Disk disk_;
  testing::ScriptedSink sink_{disk_};
  wire::NodeCounters counters_{.bytes = 42};
  StatusReporter status_;
};

TEST_F(Statuses, each_file_is_named_once) {
  EXPECT_TRUE(report_files());
  EXPECT_TRUE(texts().empty()); // there is none
  disk_.files = {"a", "b"};
  EXPECT_TRUE(report_files());
  EXPECT_TRUE(report_files());
  disk_.files.emplace_back("c");
  EXPECT_TRUE(report_files());
  EXPECT_EQ(texts(), (Texts{"a\nb\n", "c\n"}));
  EXPECT_EQ(status_.files_reported(), 3U);
}

TEST_F(Statuses, counters_are_sent_without_new_files_too) {
  disk_.files = {"a"};
  EXPECT_TRUE(status_.send<wire::Status>(evm_.client(), sink_, counters_));
  EXPECT_TRUE(status_.send<wire::Status>(evm_.client(), sink_, counters_));
  EXPECT_EQ(texts(), (Texts{"a\n", ""}));
}

TEST_F(Statuses, files_of_a_new_sink_are_named_from_the_first_one) {
  disk_.files = {"a"};
  EXPECT_TRUE(report_files());
  status_.clear();
  disk_.files = {"b"};
  EXPECT_TRUE(report_files());
  EXPECT_EQ(texts(), (Texts{"a\n", "b\n"}));
}

TEST_F(Statuses, what_the_sink_waits_for_follows_the_last_name_in_one_line) {
  disk_.files = {"a"};
  disk_.waits_for = "a filter unit\nto start";
  EXPECT_TRUE(report_files());
  EXPECT_EQ(texts(), Texts{"a\na filter unit to start"});
  disk_.waits_for = std::string(10000, 'x');
  EXPECT_TRUE(status_.send<wire::Status>(evm_.client(), sink_, counters_));
  EXPECT_EQ(texts().back(), std::string(evm_.client().room_max() / 4, 'x'));
}

TEST_F(Statuses, names_that_do_not_fit_in_one_message_follow_in_others_without_the_reason) {
  const std::size_t room = evm_.client().room_max();
  const std::string half(room / 2 - 1, 'a'); // and its line break: two fit
  disk_.files = {half, half, "b"};
  disk_.waits_for = "the disk";
  EXPECT_FALSE(status_.send<wire::Status>(evm_.client(), sink_, counters_));
  EXPECT_EQ(status_.files_reported(), 2U);
  EXPECT_TRUE(report_files());
  EXPECT_EQ(texts(), (Texts{half + '\n' + half + '\n', "b\nthe disk"}));
}

TEST_F(Statuses, the_reason_is_cut_where_the_names_leave_little_room_for_it) {
  for (const std::size_t left : {0U, 3U, 500U}) {
    status_.clear();
    disk_.files = {std::string(evm_.client().room_max() - left - 1, 'a')};
    disk_.waits_for = std::string(1000, 'x');
    EXPECT_TRUE(report_files());
    const std::size_t most = std::min(left, evm_.client().room_max() / 4);
    EXPECT_EQ(texts().back(), disk_.files[0] + '\n' + std::string(most, 'x'));
  }
}

TEST_F(Statuses, nothing_counts_as_said_while_there_is_no_room) {
  disk_.files = {"a"};
  evm_.fill();
  EXPECT_FALSE(report_files());
  EXPECT_FALSE(status_.send<wire::Status>(evm_.client(), sink_, counters_));
  EXPECT_EQ(status_.files_reported(), 0U);
  evm_.acknowledge();
  EXPECT_TRUE(report_files());
  EXPECT_EQ(texts(), Texts{"a\n"});
}

} // namespace
} // namespace fanin::builder
