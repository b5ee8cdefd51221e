#include "fanin/executive/watched_source.hpp"

#include <chrono>
#include <utility>

#include <fmt/format.h>

#include "fanin/base/counted.hpp"
#include "fanin/base/thrown.hpp"
#include "fanin/base/units.hpp"
#include "fanin/source/event_numbers.hpp"

namespace fanin::executive {

namespace {

constexpr Duration log_period = std::chrono::seconds{1};

// How wide its counter may be, if its numbers fell from the end of that range to its begin; 0: they
// did not.
int bits_of_wrap(const source::FragmentQueue& queue) {
  const source::EventNumbers& numbers = queue.numbers();
  const std::uint64_t from = numbers.counter_of(numbers.fell_from());
  const std::uint64_t to = numbers.counter_of(numbers.fell_to());
  for (const int bits : {8, 12, 16, 20, 24, 28, 32, 48}) {
    const std::uint64_t range = std::uint64_t{1} << bits;
    const std::uint64_t near = range / 64;
    if (bits < queue.options().counter_bits && from < range && range - from <= near && to < near)
      return bits;
  }
  return 0;
}

std::string remedy_for_wrap(int bits) {
  return fmt::format("its counter seems to have {} bits, and to have wrapped: start a new run with "
                     "`counter_bits = {}` at this source",
                     bits, bits);
}

bool gave_something(const source::EventNumbers& numbers) {
  bool dropped = false;
  for (std::size_t i = 0; i < wire::drop_reasons; ++i)
    dropped = dropped || numbers.dropped(static_cast<wire::DropReason>(i)) != 0;
  return dropped || !numbers.nothing_said() || numbers.reached_end() != 0 || numbers.held();
}

std::string remedy_for_fall(const source::FragmentQueue& queue) {
  if (const int bits = bits_of_wrap(queue); bits != 0) return remedy_for_wrap(bits);
  return "start a new run, with all counters reset together";
}

} // namespace

WatchedSource::WatchedSource(std::unique_ptr<source::Source> inner, std::string name,
                             net::Loop& loop, LogFunction log)
    : inner_(std::move(inner)),
      name_(std::move(name)),
      loop_(loop),
      log_(std::move(log)),
      calls_(loop.clock(), log_, fmt::format("source {}", name_), "readout unit") {}

template <class Call, class Value>
Value WatchedSource::call_or(Call call, Value otherwise) const {
  try {
    return call();
  } catch (...) {
    if (!std::exchange(throw_logged_, true))
      log_(LogLevel::error, fmt::format("source {}: {}", name_, thrown().text));
    return otherwise;
  }
}

Result<> WatchedSource::prepare() {
  try {
    return inner_->prepare();
  } catch (...) {
    return fail(ErrorKind::internal, fmt::format("source {}: {}", name_, thrown().text));
  }
}

Result<> WatchedSource::start(EventNumber first_event, Time now) {
  try {
    const CallWatch::Running call(calls_, "start");
    return inner_->start(first_event, now);
  } catch (...) {
    return std::unexpected(thrown());
  }
}

void WatchedSource::set_wake(std::function<void()> wake) {
  const auto wake_loop = [this, wake_reader = std::move(wake)] {
    wake_reader();
    loop_.wake();
  };
  (void)call_or([&] { return inner_->set_wake(wake_loop), true; }, true);
}

bool WatchedSource::ready(Time now) {
  return call_or([this, now] { return inner_->ready(now); }, true);
}

void WatchedSource::joined(const RunIdentity& run) {
  (void)call_or([&] { return inner_->joined(run), true; }, true);
}

void WatchedSource::announced(EventNumber end) {
  (void)call_or([this, end] { return inner_->announced(end), true; }, true);
}

bool WatchedSource::on_demand() const {
  return call_or([this] { return inner_->on_demand(); }, false);
}

int WatchedSource::descriptor() const {
  return call_or([this] { return inner_->descriptor(); }, -1);
}

std::string WatchedSource::listening_url() const {
  return call_or([this] { return inner_->listening_url(); }, std::string{});
}

std::vector<source::SourceCounter> WatchedSource::counters() const {
  return call_or([this] { return inner_->counters(); }, std::vector<source::SourceCounter>{});
}

source::ReadResult WatchedSource::read(source::FragmentQueue& queue, Time now) {
  source::ReadResult result;
  try {
    const CallWatch::Running call(calls_, "read");
    result = inner_->read(queue, now);
  } catch (...) {
    result = {.state = source::ReadState::failed, .error = thrown()};
  }
  note_fallen(queue);
  said_ = said_ || result.state == source::ReadState::finished ||
          result.state == source::ReadState::paused || gave_something(queue.numbers());
  for (std::size_t i = 0; i < wire::drop_reasons; ++i) {
    const auto reason = static_cast<wire::DropReason>(i);
    if (wire::counts_as_late(reason)) continue;
    if (queue.numbers().dropped(reason) != logged_[i]) [[unlikely]] {
      log_dropped(queue, reason, now);
    }
  }
  if (std::exchange(in_doubt_, queue.numbers().in_doubt()) != queue.numbers().in_doubt()) {
    log_doubt(queue);
  }
  return result;
}

void WatchedSource::note_fallen(const source::FragmentQueue& queue) {
  const source::EventNumbers& numbers = queue.numbers();
  fallen_ = {.fragments = numbers.dropped_since_accepted()};
  if (fallen_.fragments == 0) return;
  fallen_.accepted = numbers.written();
  fallen_.last_accepted = numbers.last_accepted();
  fallen_.wrapped_bits = bits_of_wrap(queue);
}

std::string WatchedSource::dropped_last() const {
  const bool many =
      fallen_.fragments >= source::enough_in_a_row || fallen_.fragments > fallen_.accepted;
  if (fallen_.wrapped_bits != 0)
    return "all that it sent last was dropped: " + remedy_for_wrap(fallen_.wrapped_bits);
  if (!many) return {};
  return fmt::format(
      "all that it sent last was dropped: none of {} has a number above {}, the last "
      "one that was accepted; start a new run, with all counters reset together",
      counted(fallen_.fragments, "fragment"), fallen_.last_accepted);
}

void WatchedSource::log_dropped(const source::FragmentQueue& queue, wire::DropReason reason,
                                Time now) {
  std::uint64_t& said = logged_[static_cast<std::size_t>(reason)];
  Time& next_log = next_log_[static_cast<std::size_t>(reason)];
  if (said != 0 && now < next_log) return;
  said = queue.numbers().dropped(reason);
  next_log = now + log_period;
  std::string why;
  if (reason == wire::DropReason::oversize) {
    why = fmt::format("larger than fragment_max ({})", format_size(queue.options().fragment_max));
  } else if (queue.numbered()) {
    why = fmt::format("where {} is the next", queue.next_event());
  } else {
    why = "before the first event";
  }
  log_(LogLevel::warning,
       fmt::format("source {}: fragments dropped: {} ({} so far), the last one with number {}, {}",
                   described(queue), wire::name(reason), said, queue.numbers().last_dropped(reason),
                   why));
  if (reason == wire::DropReason::number_back && !queue.numbers().in_doubt()) log_stuck(queue);
}

std::string WatchedSource::described(const source::FragmentQueue& queue) const {
  const SourceId id = queue.options().source;
  return name_ == fmt::format("{:#x}", id) ? name_ : fmt::format("{} ({:#x})", name_, id);
}

void WatchedSource::log_doubt(const source::FragmentQueue& queue) {
  if (!in_doubt_) {
    log_(LogLevel::info, fmt::format("source {}: it says where it stands, and its fragments are no "
                                     "longer in doubt",
                                     described(queue)));
    return;
  }
  log_(
      LogLevel::error,
      fmt::format("source {}: after number {} it sends {}: its counter began again. It is in doubt "
                  "to which events its later fragments belong, and they are marked so: {}",
                  described(queue), queue.numbers().fell_from(), queue.numbers().fell_to(),
                  remedy_for_fall(queue)));
}

// Since the last line, a second ago or more, numbers fell and none was taken.
void WatchedSource::log_stuck(const source::FragmentQueue& queue) {
  const bool stuck = written_ == queue.numbers().written() && written_ != 0;
  written_ = queue.numbers().written();
  if (!stuck) stuck_logged_ = false;
  if (!stuck || std::exchange(stuck_logged_, true)) return;
  log_(LogLevel::warning,
       fmt::format(
           "source {}: its last accepted event number is {}, and now it sends {}: a wrong number "
           "was accepted, or its counter was reset. Its fragments are dropped until its numbers "
           "are above the accepted one: {}",
           described(queue), queue.numbers().last_accepted(),
           queue.numbers().last_dropped(wire::DropReason::number_back), remedy_for_fall(queue)));
}

} // namespace fanin::executive
