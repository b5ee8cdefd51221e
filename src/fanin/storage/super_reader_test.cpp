#include "fanin/storage/super_reader.hpp"

#include <gtest/gtest.h>

#include "fanin/memory/page_pool.hpp"

namespace fanin::storage {
namespace {

using What = SuperFault::What;

// Slice 1 of 2: its events 0 to 3 are 4 to 7. The source merges 1, 2 and 4.
class SuperReaders : public ::testing::Test {
protected:
  struct Head {
    std::uint16_t version = 1;
    EventNumber event = 4;
    std::vector<SourceId> sources{1, 2, 4};
    RunNumber run = 0;
    std::uint32_t flags = 0; // of the fragment
  };
  // What is read of a fragment of event 0 with this head, of whose bytes so many are there.
  std::expected<wire::SuperHead, SuperFault> read(const Head& head, std::size_t most = 4096) {
    const wire::SuperHeader header{.version = head.version,
                                   .event = head.event,
                                   .count = static_cast<std::uint32_t>(head.sources.size()),
                                   .run = head.run};
    std::vector<std::byte> bytes(wire::super_head_size(head.sources.size()));
    std::memcpy(bytes.data(), &header, sizeof header);
    for (std::size_t i = 0; i < head.sources.size(); ++i) {
      const wire::SuperEntry entry{head.sources[i], {0, 0}};
      std::memcpy(bytes.data() + sizeof header + i * sizeof entry, &entry, sizeof entry);
    }
    bytes.resize(std::min(bytes.size(), most));
    const auto size = static_cast<std::uint32_t>(bytes.size());
    const wire::FragmentEntry entry{size | head.flags, 0};
    auto page = pool_->take();
    std::memcpy(page.data(), &entry, sizeof entry);
    std::ranges::copy(bytes, page.data() + sizeof entry);
    const memory::View all = page.freeze(0, sizeof entry + size);
    piece_ = {.source = 9,
              .range = {0, 1},
              .table = all.subview(0, sizeof entry),
              .payload = all.subview(sizeof entry, size),
              .payload_offset = 0};
    const SourcePiece* const pieces[] = {&piece_};
    return reader_.read(pieces, 0, 0, members_);
  }
  SuperFault fault(const Head& head, std::size_t most = 4096) {
    const auto found = read(head, most);
    EXPECT_FALSE(found);
    return found ? SuperFault{} : found.error();
  }

  std::unique_ptr<memory::PagePool> pool_ =
      memory::PagePool::make({.page_size = 4096, .pages = 4}).value();
  wire::Slice slice_{.number = 1, .of = 2, .block = 4};
  std::vector<SourceInfo> members_{{1, {}, {}, true}, {2, {}, {}, true}, {4, {}, {}, true}};
  SourcePiece piece_;
  SuperReader reader_{slice_, 42};
};

TEST_F(SuperReaders, find_the_head_of_what_fits) {
  const auto head = read({});
  ASSERT_TRUE(head);
  EXPECT_EQ(head->entry(2).source, 4U);
}

TEST_F(SuperReaders, tell_bytes_of_something_else) {
  EXPECT_EQ(fault({.version = 2}), SuperFault{});
  EXPECT_EQ(fault({}, 0), SuperFault{});
  EXPECT_EQ(fault({}, 23), SuperFault{});
  EXPECT_EQ(fault({}, 50), SuperFault{}); // its table is cut short
  EXPECT_EQ(text_of({}, slice_), "is not a super-fragment: see what its sender sends");
}

TEST_F(SuperReaders, tell_that_it_merges_more_or_fewer_sources) {
  EXPECT_EQ(fault({.sources = {1, 2}}), (SuperFault{What::count, 2, 3}));
  EXPECT_EQ(fault({.sources = {1, 2, 4, 5}}), (SuperFault{What::count, 4, 3}));
  EXPECT_EQ(fault({.sources = {}}), (SuperFault{What::count, 0, 3}));
  EXPECT_EQ(text_of({What::count, 1, 3}, slice_),
            "merges 1 source where the source merges 3: see \"merged\" of this source, and "
            "slice.source of its group");
}

TEST_F(SuperReaders, tell_the_first_source_that_is_another) {
  EXPECT_EQ(fault({.sources = {1, 3, 5}}), (SuperFault{What::source, 3, 2}));
  EXPECT_EQ(text_of({What::source, 3, 2}, slice_),
            "merges source 0x3 where the source merges 0x2: see \"merged\" of this source, and "
            "slice.source of its group");
}

TEST_F(SuperReaders, tell_that_it_is_of_another_event) {
  EXPECT_EQ(fault({.event = 0}), (SuperFault{What::event, 0, 4}));
  EXPECT_EQ(text_of({What::event, 0, 4}, slice_),
            "is of the detector's event 0, not 4: see slice.number = 1, slice.of = 2 and "
            "slice.block = 4 here, and event.batch_events and the order of slice.urls of its "
            "group");
}

TEST_F(SuperReaders, tell_that_it_is_of_another_run) {
  EXPECT_TRUE(read({.run = 42}));
  EXPECT_EQ(fault({.run = 77}), (SuperFault{What::run, 77, 42}));
  EXPECT_EQ(text_of({What::run, 77, 42}, slice_),
            "is of run 77, and here run 42 is built: give both the same `run.number`");
  EXPECT_TRUE(read({.run = 77, .flags = wire::fragment_bad_checksum})) << "it may be damaged";
  reader_ = SuperReader{slice_};
  EXPECT_TRUE(read({.run = 77})) << "no run is known here";
}

} // namespace
} // namespace fanin::storage
