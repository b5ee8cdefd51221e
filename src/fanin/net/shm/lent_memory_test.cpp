#include "fanin/net/shm/lent_memory.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "fanin/net/shm/testing/raw_peer.hpp"

namespace fanin::net::shm {
namespace {

constexpr std::uint64_t page = 4096;

// A sealed memory of a page with this text at its beginning and end.
Descriptor memory_with(const std::string& text) {
  Descriptor file = make_sealed(page);
  for (const std::uint64_t at : {std::uint64_t{0}, page - text.size()}) {
    const auto written = ::pwrite(file.get(), text.data(), text.size(), static_cast<off_t>(at));
    FANIN_ASSERT(written == static_cast<ssize_t>(text.size()));
  }
  return file;
}

// Of memories made here, in this process.
std::size_t mappings() {
  std::ifstream maps("/proc/self/maps");
  std::size_t count = 0;
  for (std::string line; std::getline(maps, line);) {
    if (line.find("/memfd:raw") != std::string::npos) ++count;
  }
  return count;
}

std::string text_of(const memory::View& view) {
  return {reinterpret_cast<const char*>(view.data()), view.size};
}

class Lent : public ::testing::Test {
protected:
  Lent() {
    EXPECT_TRUE(lent_->add(memory_with("first"), page));
    EXPECT_TRUE(lent_->add(memory_with("second"), page));
  }
  using Views = std::array<memory::View, pieces_max>;
  Views lend(const std::vector<Piece>& pieces, Return as) {
    Views views;
    lent_->lend(pieces, as, views);
    return views;
  }
  std::vector<std::pair<std::uint32_t, std::uint32_t>> back_; // slot and use
  LentMemory::Pointer lent_ =
      LentMemory::make([this](Return back) { back_.emplace_back(back.slot, back.use); });
};

TEST(LentMapping, of_memory_that_its_owner_can_take_away_is_refused) {
  EXPECT_EQ(Mapping::make(make_sealed(page, 0), page).error().kind, ErrorKind::malformed);
  EXPECT_EQ(Mapping::make(make_sealed(page), page + 1).error().kind, ErrorKind::malformed);
  const Descriptor on_disk{::open("/proc/self/exe", O_RDONLY | O_CLOEXEC)};
  EXPECT_EQ(Mapping::make(on_disk, page).error().kind, ErrorKind::malformed);
  EXPECT_EQ(Mapping::make(Descriptor{}, page).error().kind, ErrorKind::malformed);
  Mapping mapping = Mapping::make(make_sealed(page), page).value();
  EXPECT_EQ(mapping.size(), page);
  EXPECT_EQ(mappings(), 1U);
  mapping = Mapping{};
  EXPECT_EQ(mapping.data(), nullptr);
  EXPECT_EQ(mappings(), 0U);
}

TEST_F(Lent, a_piece_is_contained_if_all_of_it_is) {
  constexpr auto most = std::numeric_limits<std::uint64_t>::max();
  EXPECT_TRUE(lent_->contains({.memory = 0, .length = page, .offset = 0}));
  EXPECT_TRUE(lent_->contains({.memory = 1, .length = 1, .offset = page - 1}));
  EXPECT_TRUE(lent_->contains({.memory = 1, .length = 0, .offset = page}));
  EXPECT_FALSE(lent_->contains({.memory = 2, .length = 1, .offset = 0}));
  EXPECT_FALSE(lent_->contains({.memory = 0, .length = page + 1, .offset = 0}));
  EXPECT_FALSE(lent_->contains({.memory = 0, .length = 1, .offset = page}));
  EXPECT_FALSE(lent_->contains({.memory = 0, .length = 1, .offset = page + 1}));
  EXPECT_FALSE(lent_->contains({.memory = 0, .length = 2, .offset = most})); // wraps
}

TEST_F(Lent, a_message_goes_back_with_the_last_of_its_pieces) {
  Views views = lend(
      {{.memory = 0, .length = 5, .offset = 0}, {.memory = 1, .length = 6, .offset = page - 6}},
      {.slot = 3, .use = 8});
  EXPECT_EQ(text_of(views[0]), "first");
  EXPECT_EQ(text_of(views[1]), "second");
  memory::View copy = views[1];
  views = {};
  EXPECT_EQ(lent_->lent(), 1U);
  EXPECT_TRUE(back_.empty());
  EXPECT_EQ(text_of(copy), "second");
  copy = {};
  EXPECT_EQ(lent_->lent(), 0U);
  EXPECT_EQ(back_, (std::vector<std::pair<std::uint32_t, std::uint32_t>>{{3, 8}}));
}

TEST_F(Lent, messages_go_back_in_any_order_each_as_its_own) {
  std::vector<memory::View> held;
  for (std::uint32_t i = 0; i < 5; ++i)
    held.push_back(lend({{.memory = 0, .length = i + 1, .offset = 0}}, {.slot = i, .use = 1})[0]);
  EXPECT_EQ(lent_->lent(), 5U);
  held[1] = held[3] = {};
  held.push_back(lend({{.memory = 1, .length = 6, .offset = 0}}, {.slot = 9, .use = 2})[0]);
  EXPECT_EQ(text_of(held[0]), "f");
  EXPECT_EQ(text_of(held[2]), "fir");
  EXPECT_EQ(text_of(held[4]), "first");
  EXPECT_EQ(text_of(held[5]), "second");
  held.clear();
  std::ranges::sort(back_);
  EXPECT_EQ(back_, (std::vector<std::pair<std::uint32_t, std::uint32_t>>{
                       {0, 1}, {1, 1}, {2, 1}, {3, 1}, {4, 1}, {9, 2}}));
}

TEST_F(Lent, memory_stays_mapped_for_its_views_when_the_owner_is_gone) {
  Views views =
      lend({{.memory = 0, .length = 5, .offset = 0}, {.memory = 1, .length = 6, .offset = 0}},
           {.slot = 1, .use = 1});
  memory::View other = lend({{.memory = 0, .length = 1, .offset = 0}}, {})[0];
  lent_.reset();
  views[0] = {};
  other = {};
  EXPECT_EQ(text_of(views[1]), "second");
  EXPECT_EQ(mappings(), 2U);
  views = {};
  EXPECT_EQ(mappings(), 0U);
  EXPECT_TRUE(back_.empty()); // nobody is told
}

TEST_F(Lent, memory_that_is_not_lent_goes_with_its_owner) {
  (void)lend({{.memory = 0, .length = 5, .offset = 0}}, {});
  lent_.reset();
  EXPECT_EQ(mappings(), 0U);
}

TEST_F(Lent, the_memories_of_one_peer_are_bounded) {
  const Descriptor file = make_sealed(page);
  while (lent_->memories() < LentMemory::memories_max) ASSERT_TRUE(lent_->add(file, page));
  EXPECT_EQ(lent_->add(file, page).error().kind, ErrorKind::malformed);
  EXPECT_TRUE(
      lent_->contains({.memory = LentMemory::memories_max - 1, .length = page, .offset = 0}));
}

} // namespace
} // namespace fanin::net::shm
