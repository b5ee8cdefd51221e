#include "fanin/builder/manager/data_paths.hpp"

#include <algorithm>
#include <utility>

namespace fanin::builder {

namespace {
void move(Time& time, Duration pause, Time now) {
  if (time != never) time = std::min(now, time + pause);
}
} // namespace

void DataPaths::count_broken(Builder& builder) {
  builder.broken = 0;
  for (std::size_t r = 0; r < readouts_.size(); ++r) {
    const bool open = builder.paths[r].incarnation == readouts_[r].incarnation;
    if (readouts_[r].up && !open) ++builder.broken;
  }
}

void DataPaths::readout_up(NodeId node, Incarnation incarnation, Time now) {
  Readout& readout = readouts_[node];
  readout.up = true;
  readout.incarnation = incarnation;
  for (Builder& builder : builders_) {
    builder.paths[node] = {0, now};
    ++builder.broken;
  }
  changed_ = true;
}

void DataPaths::readout_down(NodeId node) {
  for (std::size_t b = 0; b < builders_.size(); ++b) {
    if (broken(static_cast<NodeId>(b), node)) --builders_[b].broken;
  }
  readouts_[node].up = false;
  changed_ = true;
}

void DataPaths::builder_up(NodeId node, Time now) {
  Builder& builder = builders_[node];
  builder.up = true;
  builder.heard = now;
  builder.paths.assign(readouts_.size(), {0, now});
  count_broken(builder);
  changed_ = true;
}

void DataPaths::builder_down(NodeId node) {
  builders_[node].up = false;
  changed_ = true;
}

bool DataPaths::report(NodeId builder, NodeId readout, Incarnation incarnation, bool open,
                       Time now) {
  if (incarnation != readouts_[readout].incarnation) return false;
  const bool before = broken(builder, readout);
  Path& path = builders_[builder].paths[readout];
  path = {open ? incarnation : 0, now, {}, path.failing_since};
  const bool after = broken(builder, readout);
  if (before && !after) --builders_[builder].broken;
  if (!before && after) ++builders_[builder].broken;
  changed_ = true;
  return true;
}

bool DataPaths::update(Time now) {
  if (!std::exchange(changed_, false)) return false;
  bool any_up = false;
  bool any_reached = false;
  for (const Builder& builder : builders_) {
    any_up = any_up || builder.up;
    any_reached = any_reached || (builder.up && builder.broken == 0);
  }
  if (any_reached || !any_up) {
    unreached_since_ = never;
  } else if (unreached_since_ == never) {
    unreached_since_ = now;
  }
  return true;
}

std::vector<NodeId> DataPaths::smallest_set_to_drop() {
  const Builder* best = nullptr;
  for (const Builder& builder : builders_) {
    if (builder.up && (best == nullptr || builder.broken < best->broken)) best = &builder;
  }
  std::vector<NodeId> nodes;
  for (std::size_t r = 0; best != nullptr && r < readouts_.size(); ++r) {
    const bool open = best->paths[r].incarnation == readouts_[r].incarnation;
    if (readouts_[r].up && !open) nodes.push_back(static_cast<NodeId>(r));
  }
  unreached_since_ = never;
  changed_ = true;
  return nodes;
}

void DataPaths::failing(NodeId builder, NodeId readout, Time now) {
  Time& since = builders_[builder].paths[readout].failing_since;
  if (since == never) since = now;
  readouts_[readout].blamed = true;
}

void DataPaths::forgive(NodeId readout) {
  readouts_[readout].blamed = false;
  for (Builder& builder : builders_) builder.paths[readout].failing_since = never;
}

Time DataPaths::failing_since(NodeId readout) const {
  Time since = never;
  for (const Builder& builder : builders_) {
    if (builder.up) since = std::min(since, builder.paths[readout].failing_since);
  }
  return since;
}

void DataPaths::Builder::pass_over(Duration pause, Time now) {
  for (Path& path : paths) {
    move(path.broken_since, pause, now);
    move(path.failing_since, pause, now);
  }
}

void DataPaths::pass_over(Duration pause, Time now) {
  for (Builder& builder : builders_) {
    move(builder.heard, pause, now);
    builder.pass_over(pause, now);
  }
  move(unreached_since_, pause, now);
}

void DataPaths::pass_over_silence(Duration normal, Time now) {
  Time last_heard{};
  for (Builder& builder : builders_) {
    if (!builder.up) continue;
    last_heard = std::max(last_heard, builder.heard);
    if (now - builder.heard <= normal) continue;
    builder.pass_over(now - std::max(builder.heard, builder.passed_over_until), now);
    builder.passed_over_until = now;
  }
  if (now - last_heard <= normal) return;
  move(unreached_since_, now - std::max(last_heard, passed_over_until_), now);
  passed_over_until_ = now;
}

} // namespace fanin::builder
