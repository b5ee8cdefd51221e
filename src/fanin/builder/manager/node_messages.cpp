#include "fanin/builder/manager/node_messages.hpp"

#include <algorithm>
#include <span>
#include <utility>

namespace fanin::builder {

namespace {
constexpr std::uint32_t lost_range_max = 1U << 30; // events
} // namespace

void send_builder_up(NodeOutbox& outbox, NodeId readout, NodeId builder, Incarnation incarnation,
                     const std::string& rails) {
  const auto size = static_cast<std::uint32_t>(rails.size());
  outbox.send(readout_key(readout), wire::BuilderUp{builder, 0, incarnation, size, 0},
              std::string_view{rails});
}

wire::Assign assignment_of(const Batch& batch, std::uint64_t seal_key) {
  wire::Assign assign;
  assign.first = batch.range.first;
  assign.events = static_cast<std::uint32_t>(batch.range.count());
  assign.attempt = batch.attempt;
  assign.builder = batch.builder;
  assign.builder_incarnation = batch.builder_incarnation;
  assign.epoch = batch.epoch;
  assign.bytes = batch.bytes;
  assign.cut_unix_ns = batch.cut_unix_ns;
  assign.seal = wire::seal_of(assign, seal_key);
  return assign;
}

void send_assignment(NodeOutbox& outbox, const Batch& batch, std::uint64_t seal_key) {
  wire::Assign assign = assignment_of(batch, seal_key);
  const std::size_t records = outbox.room_max() / (sizeof(wire::Gap) + sizeof(wire::MissingRange));
  std::span<const wire::Gap> gaps = batch.gaps;
  std::span<const wire::MissingRange> lost = batch.lost;
  do {
    const auto some_gaps = gaps.first(std::min(gaps.size(), records));
    const auto some_lost = lost.first(std::min(lost.size(), records));
    gaps = gaps.subspan(some_gaps.size());
    lost = lost.subspan(some_lost.size());
    assign.gaps = static_cast<std::uint32_t>(some_gaps.size());
    assign.lost = static_cast<std::uint32_t>(some_lost.size());
    assign.more = gaps.empty() && lost.empty() ? 0 : 1;
    outbox.send(builder_key(batch.builder), assign, some_gaps, some_lost);
  } while (assign.more != 0);
}

void send_lost(NodeOutbox& outbox, NodeId builder, std::vector<wire::MissingRange>& lost) {
  // Source by source, so that ranges of batches that follow each other are one.
  std::ranges::sort(lost, {}, [](const auto& run) { return std::pair{run.source, run.first}; });
  std::vector<wire::MissingRange> runs;
  for (const wire::MissingRange& run : lost) {
    const bool goes_on = !runs.empty() && runs.back().source == run.source &&
                         runs.back().first + runs.back().count == run.first;
    if (goes_on && runs.back().count < lost_range_max) {
      runs.back().count += run.count;
    } else {
      runs.push_back(run);
    }
  }
  const std::size_t most = outbox.room_max() / sizeof(wire::MissingRange);
  for (std::span<const wire::MissingRange> rest = runs; !rest.empty();) {
    const auto some = rest.first(std::min(rest.size(), most));
    rest = rest.subspan(some.size());
    outbox.send(builder_key(builder), wire::Lost{some.size()}, some);
  }
}

} // namespace fanin::builder
