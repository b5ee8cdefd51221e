#include "fanin/operation/history.hpp"

#include <utility>

namespace fanin::operation {
namespace {

double rate(std::uint64_t now, std::uint64_t before, double seconds) {
  return now > before && seconds > 0 ? static_cast<double>(now - before) / seconds : 0.0;
}

} // namespace

void History::add(const RunCounts& now, double seconds) {
  const RunCounts before = before_.value_or(now);
  latest_ = {.events_hz = rate(now.events, before.events, seconds),
             .incomplete_hz = rate(now.incomplete, before.incomplete, seconds),
             .bytes_per_s = rate(now.bytes, before.bytes, seconds)};
  before_ = now;
  push({latest_, true});
}

void History::add_unknown() {
  latest_ = {};
  push({});
}

void History::push(const Second& second) {
  seconds_.push_back(second);
  if (seconds_.size() > seconds_max) seconds_.pop_front();
}

json::Value History::to_json(std::int64_t end_ms) const {
  json::List events;
  json::List bytes;
  json::List incomplete;
  for (const Second& second : seconds_) {
    const auto value = [&](double number) {
      return second.known ? json::Value(number) : json::Value();
    };
    events.push_back(value(second.rates.events_hz));
    bytes.push_back(value(second.rates.bytes_per_s));
    incomplete.push_back(value(second.rates.incomplete_hz));
  }
  return json::Object{{"step_s", 1},
                      {"begin_ms", end_ms - static_cast<std::int64_t>(seconds_.size()) * 1000},
                      {"series", json::Object{{"event_rate_hz", std::move(events)},
                                              {"throughput_bytes_per_s", std::move(bytes)},
                                              {"incomplete_rate_hz", std::move(incomplete)}}}};
}

} // namespace fanin::operation
