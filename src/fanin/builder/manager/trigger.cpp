#include "fanin/builder/manager/trigger.hpp"

#include <algorithm>

namespace fanin::builder {

namespace {
constexpr Duration trigger_step = std::chrono::microseconds{50};    // between two looks, at least
constexpr Duration trigger_margin = std::chrono::microseconds{1}; // past the due time, for sure
} // namespace

Trigger::Outcome Trigger::advance(Time now, EventNumber decided) {
  const double elapsed_s = static_cast<double>((now - start_).count()) * 1e-9;
  const EventNumber window_end = decided + system_.trigger_window;
  auto due = static_cast<EventNumber>(elapsed_s * system_.trigger_rate_hz) + 1;
  due = std::min(due, window_end);
  if (system_.events_max != 0) due = std::min(due, system_.events_max);
  const bool more = due > end_;
  if (more) end_ = due;
  if (more && end_ == system_.events_max) return Outcome::last;
  full_ = end_ >= window_end;
  return full_ ? Outcome::full : Outcome::goes_on;
}

Time Trigger::next_tick(Time now, std::uint64_t bytes_per_event) const {
  Time next = time_of(end_);
  if (system_.gather_time() > Duration{0}) {
    EventNumber last = end_ | (system_.batch_events - 1);
    if (bytes_per_event > 0) last = std::min(last, end_ + system_.batch_size / bytes_per_event);
    const double gather_s = static_cast<double>(system_.gather_time().count()) * 1e-9;
    const auto gathered = static_cast<EventNumber>(gather_s * system_.trigger_rate_hz);
    next = time_of(std::min(last, end_ + gathered)) + trigger_margin;
  }
  return std::max(next, now + trigger_step);
}

Time Trigger::time_of(EventNumber event) const {
  return start_ + Duration{static_cast<Duration::rep>(static_cast<double>(event) * 1e9 /
                                                      system_.trigger_rate_hz)};
}

} // namespace fanin::builder
