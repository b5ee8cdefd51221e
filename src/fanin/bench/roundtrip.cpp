#include "fanin/bench/roundtrip.hpp"

#include <sched.h>

#include "fanin/base/try.hpp"
#include "fanin/bench/payload.hpp"

namespace fanin::bench {
namespace {

constexpr std::size_t under_way_max = 4096; // with a rate; more than that wait their turn

} // namespace

std::size_t trips_max(const Spec& spec) {
  return spec.period.count() > 0 ? under_way_max : spec.pipeline;
}

Trips::Trips(const Spec& spec, ProcessStats& stats, Time now)
    : stats_(stats),
      size_(spec.size),
      period_(spec.period),
      limit_(trips_max(spec)),
      counted_from_(now + spec.warmup),
      next_(now),
      stamps_(limit_) {}

void Trips::sent(Time now) {
  stamps_[sent_++ % limit_] = period_.count() > 0 ? next_ : now;
  next_ += period_;
}

void Trips::received(Time now) {
  const Time meant = stamps_[back_++ % limit_];
  if (meant >= counted_from_) stats_.latency.add(now - meant);
  stats_.messages.add(1);
  stats_.bytes.add(size_);
}

Result<> make_trips(Pipe& pipe, const Spec& spec, ProcessStats& stats) {
  const PayloadSource source(spec.size);
  const MonotonicClock clock;
  Time now = clock.now();
  Trips trips{spec, stats, now};
  stats.state = ProcessStats::State::ready;
  while (!termination_asked()) {
    while (trips.may_send(now)) {
      FANIN_TRY(pipe.send(source.bytes()));
      trips.sent(now);
    }
    const auto came = FANIN_TRY(pipe.receive(trips.next_send()));
    now = clock.now();
    if (came) {
      trips.received(now);
    } else {
      sched_yield(); // after some looking, the core goes to who needs it
    }
  }
  return {};
}

Result<> send_back(Pipe& pipe, const Spec& spec) {
  const PayloadSource source(spec.size);
  while (true) {
    const auto came = pipe.receive(never);
    if (!came) return {}; // its peer has ended
    if (!*came) {
      sched_yield();
      continue;
    }
    if (auto sent = pipe.send(source.bytes()); !sent) return {};
  }
}

} // namespace fanin::bench
