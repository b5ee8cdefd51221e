#include "fanin/builder/filtering/batch_reader.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <optional>
#include <string>

#include <fmt/format.h>

namespace fanin::builder {
namespace {

using Fragments = std::vector<std::optional<std::string>>; // none: absent

class BatchRead : public ::testing::Test {
protected:
  void TearDown() override {
    reader_.end();
    EXPECT_EQ(pool_->available(), pool_->pages());
  }
  // A data message of fragments from `first` on.
  ReceivedBlock block(SourceId source, EventNumber first, const Fragments& fragments) {
    std::vector<wire::FragmentEntry> table;
    std::string payload;
    for (const auto& fragment : fragments) {
      payload += fragment.value_or("");
      table.push_back(fragment ? wire::FragmentEntry{static_cast<std::uint32_t>(fragment->size())}
                               : wire::FragmentEntry::make_absent(wire::AbsentReason{}));
    }
    return message({.source = source, .first_event = first}, table, payload);
  }
  // A message with a part of one fragment of `size` bytes.
  ReceivedBlock piece(SourceId source, EventNumber event, std::uint32_t size, std::uint32_t offset,
                      const std::string& payload) {
    return message({.source = source, .first_event = event, .payload_offset = offset}, {{size}},
                   payload);
  }
  ReceivedBlock message(wire::DataBlockHeader header, const std::vector<wire::FragmentEntry>& table,
                        const std::string& payload) {
    header.batch_events = 100;
    header.entries = static_cast<std::uint32_t>(table.size());
    header.payload_size = static_cast<std::uint32_t>(payload.size());
    const auto head =
        static_cast<std::uint32_t>(sizeof header + table.size() * sizeof table.front());
    const memory::Loan page = pool_->take();
    std::memcpy(page.data(), &header, sizeof header);
    std::memcpy(page.data() + sizeof header, table.data(), head - sizeof header);
    std::memcpy(page.data() + head, payload.data(), payload.size());
    ReceivedBlock made;
    made.message = page.freeze(0, head);
    if (!payload.empty()) made.rest = page.freeze(head, header.payload_size);
    const auto view = wire::decode_data_block(made.message.bytes(), made.rest.bytes());
    EXPECT_TRUE(view) << view.error().text;
    if (view) made.view = *view;
    return made;
  }
  template <class... Parts>
  void begin(Parts... blocks) {
    std::vector<ReceivedBlock> all;
    (all.push_back(std::move(blocks)), ...);
    reader_.begin(std::move(all));
  }
  // "source:payload" of each fragment.
  std::string at(EventNumber event) {
    std::string text;
    for (const FilterFragment& fragment : reader_.fragments_of(event)) {
      text += fmt::format("{}:{} ", fragment.source,
                          std::string_view{reinterpret_cast<const char*>(fragment.payload.data()),
                                           fragment.payload.size()});
    }
    return text;
  }

  std::unique_ptr<memory::PagePool> pool_ =
      memory::PagePool::make(
          {.page_size = 4096, .pages = 16, .arena = {.huge_pages = memory::HugePages::off}})
          .value();
  BatchReader reader_;
};

TEST_F(BatchRead, gives_the_fragments_of_an_event_by_source_however_the_messages_came) {
  begin(block(9, 10, {"d", "ee"}), block(3, 12, {"c"}), block(3, 10, {"a", "bb"}),
        block(9, 12, {"fff"}));
  EXPECT_EQ(at(10), "3:a 9:d ");
  EXPECT_EQ(at(11), "3:bb 9:ee ");
  EXPECT_EQ(at(12), "3:c 9:fff ");
  EXPECT_EQ(at(13), "");
}

TEST_F(BatchRead, leaves_out_absent_fragments_and_gives_empty_ones) {
  begin(block(3, 10, {"a", std::nullopt, "", "d", ""}));
  EXPECT_EQ(at(10), "3:a ");
  EXPECT_EQ(at(11), "");
  EXPECT_EQ(at(12), "3: ");
  EXPECT_EQ(at(13), "3:d ");
  EXPECT_EQ(at(14), "3: ");
}

TEST_F(BatchRead, a_source_whose_messages_end_has_none_of_the_next_one) {
  begin(block(3, 10, {"a", "b"}), block(9, 10, {"c", "d"}), block(9, 12, {"e", "f"}),
        block(12, 14, {"g"}));
  EXPECT_EQ(at(12), "9:e ");
  EXPECT_EQ(at(14), "12:g ");
}

TEST_F(BatchRead, events_may_be_left_out_and_asked_for_again) {
  begin(block(3, 10, {"a", "bb", "ccc", "dddd"}), block(3, 20, {"e", "ff"}));
  EXPECT_EQ(at(9), "");
  EXPECT_EQ(at(12), "3:ccc ");
  EXPECT_EQ(at(12), "3:ccc ");
  EXPECT_EQ(at(15), ""); // of which no message has come
  EXPECT_EQ(at(21), "3:ff ");
}

TEST_F(BatchRead, joins_a_fragment_that_came_in_several_messages) {
  begin(piece(3, 11, 7, 5, "fg"), block(3, 10, {"x"}), piece(3, 11, 7, 0, "abc"),
        piece(3, 11, 7, 3, "de"), block(3, 12, {"y"}), block(9, 10, {"1", "2", "3"}));
  EXPECT_EQ(at(10), "3:x 9:1 ");
  EXPECT_EQ(at(11), "3:abcdefg 9:2 ");
  EXPECT_EQ(at(11), "3:abcdefg 9:2 ");
  EXPECT_EQ(at(12), "3:y 9:3 ");
}

TEST_F(BatchRead, a_fragment_of_which_a_message_is_not_there_is_left_out) {
  begin(piece(3, 10, 5, 2, "cde"), block(3, 11, {"x"}), piece(3, 12, 5, 0, "ab"),
        piece(3, 13, 6, 0, "ab"), piece(3, 13, 6, 4, "ef"), piece(3, 14, 4, 0, "ab"),
        piece(3, 14, 4, 0, "ab"), block(3, 15, {"y"}));
  EXPECT_EQ(at(10), "");
  EXPECT_EQ(at(11), "3:x ");
  EXPECT_EQ(at(12), "");
  EXPECT_EQ(at(13), "");
  EXPECT_EQ(at(14), ""); // the first one twice
  EXPECT_EQ(at(15), "3:y ");
}

// The messages may lie in memory of the readout unit, which has checked them when they came.
TEST_F(BatchRead, sizes_that_are_changed_after_the_check_never_lead_out_of_the_message) {
  const auto change = [](const ReceivedBlock& block, std::size_t entry, std::uint32_t size) {
    const_cast<wire::FragmentEntry&>(block.view.table[entry]).size_and_flags = size;
  };
  ReceivedBlock large = block(3, 10, {"a", "b", "c"});
  change(large, 1, 3);
  ReceivedBlock far = block(5, 10, {"a", "b", "c"});
  change(far, 0, wire::fragment_size_mask);
  ReceivedBlock exact = block(7, 10, {"a", "b", "c"});
  change(exact, 1, 2);
  ReceivedBlock joined = piece(9, 11, 4, 0, "ab");
  ReceivedBlock rest = piece(9, 11, 4, 2, "cd");
  change(joined, 0, 5);
  begin(large, far, exact, joined, rest);
  EXPECT_EQ(at(10), "3:a 7:a ");
  EXPECT_EQ(at(11), "7:bc ");
  EXPECT_EQ(at(12), ""); // what they have begins behind their payload
}

TEST_F(BatchRead, gives_the_flags_of_a_fragment) {
  begin(message({.source = 3, .first_event = 10}, {{1 | wire::fragment_truncated}}, "a"));
  const auto fragments = reader_.fragments_of(10);
  ASSERT_EQ(fragments.size(), 1U);
  EXPECT_EQ(fragments[0].flags, wire::fragment_truncated);
}

TEST_F(BatchRead, knows_nothing_of_the_batch_before) {
  begin(block(3, 10, {"a", "b"}), block(4, 10, {"c", "d"}));
  EXPECT_EQ(at(10), "3:a 4:c ");
  begin(block(4, 2, {"f"}), block(3, 2, {"e"}));
  EXPECT_EQ(at(2), "3:e 4:f ");
  reader_.end();
  EXPECT_EQ(pool_->available(), pool_->pages()); // the messages are let go
  EXPECT_EQ(at(2), "");
}

} // namespace
} // namespace fanin::builder
