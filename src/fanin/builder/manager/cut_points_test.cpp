#include "fanin/builder/manager/cut_points.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <vector>

#include "fanin/base/random.hpp"
#include "fanin/wire/fragment.hpp"

namespace fanin::builder {
namespace {

std::uint64_t with_metadata(std::uint64_t events, std::uint64_t sources, std::uint64_t payload) {
  return payload + sources * (events * sizeof(wire::FragmentEntry) + 256) + payload / 512;
}

TEST(CutPoints, batch_never_crosses_a_multiple_of_its_size) {
  CutPoints cuts{16, 1 << 20, 1};
  cuts.add({{0, 40}, 400});
  EXPECT_EQ(cuts.next(40).range, (EventRange{0, 16}));
  cuts.move_to(16);
  EXPECT_EQ(cuts.next(40).range, (EventRange{16, 32}));
  cuts.move_to(32);
  EXPECT_EQ(cuts.next(40).range, (EventRange{32, 40}));
  EXPECT_EQ(cuts.next(40).bytes, with_metadata(8, 1, 400)); // the range counts whole
  cuts.move_to(40);
  EXPECT_TRUE(cuts.next(40).range.empty());
}

TEST(CutPoints, batch_ends_where_it_has_enough_bytes) {
  CutPoints cuts{64, 5000, 1};
  for (EventNumber i = 0; i < 10; ++i) cuts.add({{i, i + 1}, 1000});
  const Cut cut = cuts.next(10);
  EXPECT_EQ(cut.range, (EventRange{0, 4}));
  EXPECT_EQ(cut.bytes, with_metadata(4, 1, 4000));
}

TEST(CutPoints, single_range_beyond_the_size_is_one_batch) {
  CutPoints cuts{64, 5000, 1};
  cuts.add({{0, 3}, 50'000});
  EXPECT_EQ(cuts.next(3).range, (EventRange{0, 3}));
}

// What it replaced: a list for each readout unit, of which each cut searched all.
struct Reference {
  struct Point {
    EventNumber end = 0;
    std::uint64_t bytes = 0; // up to there
  };
  struct Readout {
    std::deque<Point> points;
    std::uint64_t bytes = 0;
    std::uint64_t floor = 0;
  };
  std::vector<Readout> readouts;
  EventNumber start = 0;

  [[nodiscard]] Cut next(EventNumber end, std::uint64_t batch_events, std::uint64_t batch_bytes,
                         std::uint64_t sources) const {
    const EventNumber stop = std::min(end, (start | (batch_events - 1)) + 1);
    Cut cut{{start, start}, 0};
    while (cut.range.end < stop) {
      EventNumber candidate = stop;
      for (const auto& readout : readouts) {
        for (const auto& point : readout.points) {
          if (point.end > cut.range.end) candidate = std::min(candidate, point.end);
        }
      }
      std::uint64_t payload = 0;
      for (const auto& readout : readouts) {
        const auto at = std::ranges::lower_bound(readout.points, candidate, {}, &Point::end);
        payload += (at == readout.points.end() ? readout.bytes : at->bytes) - readout.floor;
      }
      const std::uint64_t bytes = with_metadata(candidate - start, sources, payload);
      if (bytes > batch_bytes && !cut.range.empty()) break;
      cut = {{start, candidate}, bytes};
    }
    return cut;
  }
  void move_to(EventNumber to) {
    start = to;
    for (auto& readout : readouts) {
      while (!readout.points.empty() && readout.points.front().end <= start) {
        readout.floor = readout.points.front().bytes;
        readout.points.pop_front();
      }
    }
  }
};

TEST(CutPoints, cuts_as_searching_all_readout_units_would) {
  for (std::uint64_t seed = 1; seed <= 50; ++seed) {
    SCOPED_TRACE(seed);
    Random random{seed};
    const std::size_t nodes = 1 + random.below(5);
    CutPoints cuts{32, 6000, nodes};
    Reference reference;
    reference.readouts.resize(nodes);
    std::vector<EventNumber> ends(nodes);
    std::vector<EventNumber> counted(nodes); // up to there; its first range counts from anywhere
    std::vector<std::deque<AnnouncedRange>> open(nodes);
    for (int step = 0; step < 300; ++step) {
      const std::size_t node = random.below(nodes);
      const EventNumber end = ends[node] + 1 + random.below(20);
      const std::uint64_t bytes = random.below(1500);
      open[node].push_back({{counted[node], end}, bytes});
      cuts.add(open[node].back());
      reference.readouts[node].bytes += bytes;
      reference.readouts[node].points.push_back({end, reference.readouts[node].bytes});
      ends[node] = counted[node] = end;
      const EventNumber all = *std::ranges::min_element(ends);
      if (random.chance(1, 50)) { // it dies, and begins anew where it was
        for (const auto& range : open[node]) {
          if (range.range.end > cuts.start()) cuts.remove(range);
        }
        open[node].clear();
        counted[node] = 0;
        reference.readouts[node] = {};
      }
      const Cut cut = cuts.next(all);
      const Cut expected = reference.next(all, 32, 6000, nodes);
      ASSERT_EQ(cut.range, expected.range) << "step " << step;
      ASSERT_EQ(cut.bytes, expected.bytes) << "step " << step;
      if (cut.range.empty() || random.chance(1, 3)) continue;
      cuts.move_to(cut.range.end);
      reference.move_to(cut.range.end);
      for (auto& ranges : open) {
        while (!ranges.empty() && ranges.front().range.end <= cut.range.end) ranges.pop_front();
      }
    }
  }
}

} // namespace
} // namespace fanin::builder
