#include "fanin/executive/monitoring_sink.hpp"

#include <utility>

#include "fanin/builder/filtering/prescale.hpp"

namespace fanin::executive {
namespace {

// Its events are chosen independently of those of the streams.
constexpr std::size_t no_stream = storage::streams_max + 1;

} // namespace

MonitoringSink::MonitoringSink(std::unique_ptr<storage::EventSink> inner, EventOutput& output,
                               net::Loop& loop, const Sampling& sampling,
                               storage::EventSources sources)
    : SinkDecorator(std::move(inner)),
      output_(output),
      loop_(loop),
      sampling_(sampling),
      slice_(sources.slice),
      events_(std::move(sources)) {}

storage::SubmitOutcome MonitoringSink::submit(storage::BuiltBatch& batch) {
  // Before it is gone; once, however often it is offered.
  if (shown_ != batch.ticket && output_.wanted()) show(batch);
  shown_ = batch.ticket;
  const auto outcome = inner().submit(batch);
  if (outcome == storage::SubmitOutcome::accepted) shown_.reset();
  return outcome;
}

bool MonitoringSink::chosen(EventNumber detector_number) const {
  return builder::prescale_keeps(sampling_.run, detector_number, no_stream, sampling_.every);
}

bool MonitoringSink::has_chosen(const storage::BuiltBatch& batch) const {
  for (EventNumber event = batch.range.first; event < batch.range.end; ++event) {
    const bool rejected = !batch.streams.empty() && batch.streams[event - batch.range.first] == 0;
    if (!rejected && chosen(slice_.detector_number(event))) return true;
  }
  return false;
}

void MonitoringSink::show(const storage::BuiltBatch& batch) {
  const bool limited = sampling_.rate_hz > 0;
  const Time now = loop_.now();
  if ((limited && now < next_) || !has_chosen(batch)) return;
  events_.read(batch);
  const std::size_t count = events_.size();
  // With a rate one event of a batch is shown, and not always the first one.
  const std::uint64_t scattered = batch.range.first * 0x9e3779b97f4a7c15U >> 32;
  const std::size_t first = limited && count > 0 ? scattered % count : 0;
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t at = (first + i) % count;
    if (!chosen(events_.number(at))) continue;
    const storage::BuiltEvent event = events_.event(at);
    if ((event.flags & storage::event_rejected) != 0) continue;
    output_.publish(sampling_.run, event);
    if (!limited) continue;
    next_ = now + Duration{static_cast<Duration::rep>(1e9 / sampling_.rate_hz)};
    break;
  }
  events_.read({}); // so that nothing stays that was put together
}

} // namespace fanin::executive
