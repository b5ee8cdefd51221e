#include "fanin/builder/readout/source_reader.hpp"

#include <algorithm>
#include <utility>

namespace fanin::builder {

SourceReader::SourceReader(ReadoutInput input, Duration longest_pause)
    : woken_(std::make_shared<std::atomic<bool>>(false)),
      source_(std::move(input.source)),
      pool_(*input.pool),
      queue_(input.queue, pool_),
      pause_(longest_pause) {
  source_->set_wake([woken = woken_] { woken->store(true); });
}

Result<> SourceReader::start(const wire::Welcome& welcome, Time now) {
  if (welcome.joining != 0) queue_.start(welcome.first_event);
  if (welcome.joining != 0 && welcome.incarnation > 1) queue_.numbers().join_after_death();
  queue_.numbers().set_limit(welcome.limit);
  if (welcome.joining == 0) queue_.numbers().allow_reset(source::CounterReset::yes);
  last_ = {.wake = now};
  waits_for_others_ = gives_more_ = far_ahead_ = unclear_ = false;
  bytes_max_ = 0;
  pause_.end();
  for (std::size_t reason = 0; reason < wire::drop_reasons; ++reason) {
    dropped_before_[reason] = queue_.numbers().dropped(static_cast<wire::DropReason>(reason));
  }
  auto started = source_->start(queue_.numbers().counter_of(welcome.first_event), now);
  if (!started) last_ = {source::ReadState::failed, never, started.error()};
  return started;
}

void SourceReader::measure_lead(std::uint64_t limit) {
  if (!source_->on_demand()) return;
  const std::uint64_t held = queue_.held_bytes();
  far_ahead_ = far_ahead_ ? held > limit / 2 : held >= limit;
}

bool SourceReader::due(Time now, bool retry) const {
  if (retry || has_more()) return true;
  const bool may_have_more = now >= last_.wake || woken();
  const bool pages_back = pool_.available() > pages_left_; // sent, after a clear
  return (now >= pause_.until() && may_have_more) || (queue_.throttled() && pages_back);
}

void SourceReader::read(Time now) {
  const EventNumber answered = queue_.next_event();
  woken_->store(false);
  last_ = source_->read(queue_, now);
  const std::uint64_t bytes_before = bytes_max_;
  bytes_max_ = std::max(bytes_max_, queue_.bytes_written());
  const std::uint64_t bytes = bytes_max_ - bytes_before;
  if (waits()) pause_.begin(bytes, now);
  gives_more_ = has_more() && (bytes > 0 || queue_.next_event() != answered);
  unclear_ = queue_.numbers().unclear();
  pages_left_ = pool_.available();
}

Time SourceReader::next_read(Time now) const {
  if (!waits()) return never;
  const Time pause_end = pause_.until();
  if (woken() && pause_end > now) return pause_end;
  return std::max(last_.wake, pause_end);
}

bool SourceReader::take_decided() {
  if (!unclear_ || queue_.numbers().unclear()) return false;
  unclear_ = false;
  return true;
}

void SourceReader::count(wire::NodeCounters& node, wire::SourceCounters& own) const {
  node.pages += pool_.pages();
  node.pages_in_use += pool_.pages() - pool_.available();
  own.accepted = queue_.numbers().written();
  own.last_refused = queue_.numbers().last_refused();
  for (std::size_t reason = 0; reason < wire::drop_reasons; ++reason) {
    own.dropped[reason] =
        queue_.numbers().dropped(static_cast<wire::DropReason>(reason)) - dropped_before_[reason];
  }
}

} // namespace fanin::builder
