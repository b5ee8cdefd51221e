#include "fanin/source/receive_source.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "fanin/base/counted.hpp"
#include "fanin/base/try.hpp"
#include "fanin/base/units.hpp"

namespace fanin::source {
namespace {

constexpr std::size_t staging_size = 64U << 10;
constexpr std::size_t socket_bytes_per_read = 512U << 10;
// In bytes; they bound a read() of a sender that drips, and of senders that come and go.
constexpr std::size_t cost_per_call = 512;
constexpr std::size_t cost_per_connection = 16U << 10;
constexpr Duration silence_max = std::chrono::seconds{1};
// A sender that comes back so often, each time so soon, although its connection lives, may be two.
constexpr std::uint32_t takeovers_max = 2;
constexpr Duration takeovers_period = std::chrono::seconds{10};
// One that comes back so often without a whole message gives its place to others.
constexpr std::uint32_t places_kept_max = 5;

// A plain sender may have sent all its data and gone. A reliable one leaves when all is
// acknowledged, so that one which has gone before the run begins is dead.
bool has_left(const net::Stream& stream, std::uint64_t sender) {
  return sender == 0 ? stream.has_ended() : stream.peer_has_left();
}

} // namespace

Result<std::unique_ptr<ReceiveSource>> ReceiveSource::make(ReceiveOptions options) {
  auto watch = FANIN_TRY(options.port->streams().make_watch());
  return std::unique_ptr<ReceiveSource>(new ReceiveSource(std::move(options), std::move(watch)));
}

ReceiveSource::ReceiveSource(ReceiveOptions options, std::unique_ptr<net::StreamWatch> watch)
    : options_(std::move(options)),
      watch_(std::move(watch)),
      wake_([] {}),
      decoder_(options_.source, options_.check),
      acknowledger_(options_.source),
      staging_(staging_size) {
  if (!options_.log) options_.log = [](LogLevel, std::string_view) {};
  options_.port->expect(*this);
}

ReceiveSource::~ReceiveSource() { options_.port->withdraw(*this); }

// An error names the key of the configuration.
Result<> ReceiveSource::with_place(Result<> result) const {
  if (result || options_.listen_from.empty()) return result;
  return fail(result.error().kind,
              fmt::format("{}: {}", options_.listen_from, result.error().text));
}

Result<> ReceiveSource::prepare() { return with_place(options_.port->prepare()); }

void ReceiveSource::set_wake(std::function<void()> wake) {
  watch_->set_wake(wake);
  wake_ = std::move(wake);
}

Result<> ReceiveSource::listen() {
  if (state_ == State::listening || state_ == State::reading) return {};
  FANIN_TRY(with_place(options_.port->add(*this)));
  FANIN_TRY(watch_->add(options_.port->watch()));
  state_ = State::listening;
  options_.log(LogLevel::info, fmt::format("waits for fragments at {}{}", listening_url(),
                                           options_.wait_for_sender
                                               ? "; the run begins when its sender has connected"
                                               : ""));
  return {};
}

Result<> ReceiveSource::start(EventNumber first_event, Time /*now*/) {
  decoder_.begin_run();
  acknowledger_.start(first_event);
  FANIN_TRY(listen());
  state_ = State::listening;
  return {};
}

bool ReceiveSource::ready(Time now) {
  if (!options_.wait_for_sender || state_ == State::ended || !listen()) return true;
  watch_->poll();
  options_.port->poll(now);
  const auto left = std::erase_if(waiting_, [&](const ReceivePort::Arrival& arrival) {
    const bool gone = has_left(*arrival.stream, arrival.sender);
    if (gone) closed(arrival.peer, ReceiveFault::none, "", now);
    return gone;
  });
  if (left > 0) options_.port->retry(); // there is room for others
  if (!waiting_.empty() || !connection_.stream) return !waiting_.empty();
  const bool has_data = connection_.sender == 0 && staged_from_ < staged_to_;
  return has_data || !has_left(*connection_.stream, connection_.sender);
}

void ReceiveSource::announced(EventNumber end) {
  acknowledger_.announced(end); // the next read() says so
  if (descriptor() < 0) wake_(); // else there is one in each turn
}

std::string ReceiveSource::listening_url() const {
  return state_ == State::ended ? std::string{} : options_.port->listening_url();
}

// --- what the port says --------------------------------------------------------------------------

bool ReceiveSource::is_of_sender(const ReceivePort::Arrival& arrival) const {
  return arrival.reliable() && arrival.sender == connection_.sender;
}

void ReceiveSource::take(ReceivePort::Arrival arrival, Time now) {
  if (!run_.takes(arrival.run)) {
    send_answer(*arrival.stream,
                {.status = ReceiveStatus::other_run, .source = id(), .end = run_.number()});
    return closed(arrival.peer, ReceiveFault::other_run, run_.why_not(arrival.run), now);
  }
  const bool same = is_of_sender(arrival);
  if (arrival.reliable()) {
    std::erase_if(waiting_, [&](const auto& other) { return other.sender == arrival.sender; });
  }
  const bool has_turn = keeps_place(now) ? same : waiting_.empty();
  if (!connection_.stream && has_turn) {
    begin_connection(std::move(arrival), now);
  } else if (connection_.stream && same) {
    take_again(std::move(arrival), now);
  } else if (options_.port->shared() && waiting_.size() >= ReceivePort::waiting_max) {
    refused(fmt::format("{} refused: {} senders of this source wait already, and others share its "
                        "address",
                        arrival.peer, waiting_.size()),
            now);
  } else {
    if (waiting_.empty()) waiting_since_ = now;
    waiting_.push_back(std::move(arrival));
  }
}

// A sender that was known before has lost its connection: what came over that is still read. Two
// programs with one number look alike, and would drive each other out for ever: the first one that
// has come back keeps its place for as long as its data come in.
void ReceiveSource::take_again(ReceivePort::Arrival arrival, Time now) {
  const bool silent =
      !connection_.stream->readable() && now >= connection_.last_bytes_at + silence_max;
  const bool replaced = !connection_.replaced_by.empty();
  if (now >= takeovers_until_) takeovers_ = 0;
  if (takeovers_ < takeovers_max || silent || replaced) {
    if (!replaced) ++takeovers_;
    replace_by(arrival.peer);
  } else {
    warn(fmt::format("{} and {} have connected in turn with the same number of a sender, {}. If "
                     "they are two programs, each needs a number of its own, drawn at random. {} "
                     "waits until {} has closed its connection or sent nothing for {}",
                     connection_.peer, arrival.peer, arrival.sender, arrival.peer, connection_.peer,
                     format_duration(silence_max)),
         now);
  }
  takeovers_until_ = now + takeovers_period;
  waiting_.push_front(std::move(arrival));
}

void ReceiveSource::replace_by(std::string peer) {
  connection_.replaced_by = std::move(peer);
  connection_.stream->end_reading();
}

void ReceiveSource::closed(std::string_view peer, ReceiveFault fault, std::string_view why,
                           Time now) {
  ++connections_;
  count_end(peer, fault, fault == ReceiveFault::none ? "nothing of it was read" : why, now);
}

void ReceiveSource::count_end(std::string_view peer, ReceiveFault fault, std::string_view why,
                              Time now) {
  ++faults_[static_cast<std::size_t>(fault)];
  if (fault == ReceiveFault::none) {
    connection_lines_.write(options_.log, now, LogLevel::info,
                            fmt::format("{} disconnected: {}", peer, why));
  } else {
    warn(fmt::format("{} disconnected: {}{}", peer, described(fault),
                     why.empty() ? std::string{} : fmt::format(" ({})", why)),
         now);
  }
}

void ReceiveSource::refused(std::string_view why, Time now) {
  ++refused_;
  warn(why, now);
}

void ReceiveSource::warn(std::string_view text, Time now) {
  warnings_.write(options_.log, now, LogLevel::warning, text);
}

// --- connections ---------------------------------------------------------------------------------

void ReceiveSource::begin_connection(ReceivePort::Arrival arrival, Time now) {
  if (const auto watched = watch_->add(*arrival.stream); !watched)
    return refused(fmt::format("{} refused: {}", arrival.peer, watched.error().text), now);
  const bool same = is_of_sender(arrival);
  const auto last = numbers_ == nullptr ? std::nullopt : numbers_->last_decided();
  if (arrival.reliable()) {
    const ReceiveReply answer{.source = options_.source,
                              .end = last ? *last + 1 : 0,
                              .dropped = same ? acknowledger_.dropped() : 0};
    if (!send_answer(*arrival.stream, answer, acknowledger_.end() != 0))
      return closed(arrival.peer, ReceiveFault::none, "", now);
  }
  if (!same) {
    decoder_.begin_sender();
    acknowledger_.begin_sender();
    places_kept_ = 0;
  }
  decoder_.connect(arrival.reliable());
  acknowledger_.connect(arrival.reliable());
  acknowledger_.send(*arrival.stream);
  connection_ = {.stream = std::move(arrival.stream),
                 .peer = std::move(arrival.peer),
                 .sender = arrival.sender,
                 .begun = last.has_value(),
                 .connected_at = now,
                 .last_bytes_at = now};
  new_messages_before_ = decoder_.new_messages();
  ++connections_;
  connection_lines_.write(options_.log, now, LogLevel::info,
                          fmt::format("{} connected", connection_.peer));
}

// The readout unit has joined again, and forgotten what was read and not announced. What a sender
// has sent meanwhile may be below what is wanted, and it should know that it was not read.
void ReceiveSource::join_again(FragmentQueue& queue, Time now) {
  if (queue.open()) queue.cancel();
  const EventNumber first = queue.numbered() ? queue.first_event() : 0;
  decoder_.begin_at(first == 0 ? 0 : queue.numbers().counter_of(first));
  if (connection_.stream && connection_.sender != 0 && (connection_.begun || first > 0)) {
    close_connection(queue, now, "it has to send again what was not acknowledged",
                     Ending::too_early);
  }
}

void ReceiveSource::begin_next(Time now) {
  while (!connection_.stream && !waiting_.empty()) {
    auto at = waiting_.begin();
    if (keeps_place(now))
      at = std::ranges::find(waiting_, connection_.sender, &ReceivePort::Arrival::sender);
    if (at == waiting_.end()) return;
    ReceivePort::Arrival next = std::move(*at);
    waiting_.erase(at);
    begin_connection(std::move(next), now);
    options_.port->retry();
  }
}

// The connection has nothing to read. If it ends within a message, a size may be wrong, and what
// the sender has sent may have been taken for payload: one that comes back sends it again. Returns
// when to look again.
Time ReceiveSource::watch_message(FragmentQueue& queue, Time now) {
  if (connection_.sender == 0 || !decoder_.within_message()) return never;
  const Time end = unreadable_since_ + silence_max;
  if (now < end) return end;
  close_connection(
      queue, now,
      fmt::format("the rest of a message has not come for {}: its size may be wrong, or "
                  "bytes are missing",
                  format_duration(silence_max)));
  return now;
}

// The connection has nothing to read. Whether it has ended is not known as long as the end that its
// sender sent is under way, so the others wait. Returns when to look again.
Time ReceiveSource::watch_waiting(Time now) {
  if (waiting_.empty() || !is_of_sender(waiting_.front())) return say_who_waits(now);
  const Time due = connection_.last_bytes_at + silence_max;
  if (now < due) return due;
  replace_by(waiting_.front().peer);
  return now;
}

// Senders that connect for each spill wait for each other, too, but for a short time. Returns when
// to look again.
Time ReceiveSource::say_who_waits(Time now) {
  if (!connection_.stream || connection_.waiting_logged) return never;
  const auto other =
      std::ranges::find_if(waiting_, [this](const auto& one) { return !is_of_sender(one); });
  if (other == waiting_.end()) return never;
  const Time due = std::max(connection_.connected_at, waiting_since_) + silence_max;
  if (now < due) return due;
  connection_.waiting_logged = true;
  warn(fmt::format("{} is another sender of this source, and waits until {} has closed its "
                   "connection: one sends at a time",
                   other->peer, connection_.peer),
       now);
  return never;
}

void ReceiveSource::close_connection(FragmentQueue& queue, Time now, std::string_view why,
                                     Ending ending) {
  count_dropped(queue);
  const ReceiveFault fault = decoder_.disconnect(queue);
  if (decoder_.new_messages() != new_messages_before_) places_kept_ = 0;
  const bool has_more = ending == Ending::too_early && !decoder_.paused();
  if (fault != ReceiveFault::none || has_more) keep_place(queue, now);
  count_end(connection_.peer, fault, why, now);
  // Its sender sees that not all was read.
  if (fault != ReceiveFault::none) connection_.stream->reset_on_close();
  connection_.stream.reset();
  staged_from_ = staged_to_ = 0;
}

// For the sender whose connection has ended: it may come back with lower numbers than others have.
// Meanwhile the source is silent.
void ReceiveSource::keep_place(const FragmentQueue& queue, Time now) {
  if (connection_.sender == 0 || places_kept_ == places_kept_max) return;
  ++places_kept_;
  connection_.place_kept_until = now + std::min(silence_max, queue.options().deadline / 2);
}

// Bytes that have come and were not taken.
std::size_t ReceiveSource::rest() {
  const std::size_t staged = staged_to_ - staged_from_;
  const net::Transfer read = connection_.stream->read(std::span(staging_));
  return read.outcome == net::Transfer::Outcome::done ? staged + read.bytes : staged;
}

void ReceiveSource::close_for_fault(FragmentQueue& queue, Time now) {
  std::string why = "closed here";
  if (decoder_.fault() == ReceiveFault::damaged) why = "its sender has to send again";
  if (decoder_.fault() == ReceiveFault::other_source)
    why = fmt::format("of {:#x}; its preface said {:#x}", decoder_.named_source(), id());
  close_connection(queue, now, why);
}

// Whoever waits is refused, and whoever comes later: nobody waits for ever. What comes to the port
// from now on is for others, and wakes this readout unit no more, which would not look.
void ReceiveSource::end_data(FragmentQueue& queue, Time now) {
  acknowledge(queue);
  const std::size_t beyond = rest();
  if (beyond != 0) decoder_.go_beyond_end();
  close_connection(queue, now,
                   beyond == 0 ? "end of the data"
                               : fmt::format("{} or more", counted(beyond, "byte")));
  state_ = State::ended;
  watch_->remove(options_.port->watch());
  std::size_t closed = options_.port->end_of_data(*this) + waiting_.size();
  for (const auto& arrival : waiting_) {
    if (!arrival.reliable()) continue;
    send_answer(*arrival.stream, {.status = ReceiveStatus::ended, .source = options_.source});
  }
  waiting_.clear();
  refused_ += closed;
  options_.port->retry(); // there is room for senders of others
  options_.port->poll(now);
  if (closed == 0) return;
  warn(fmt::format("{} refused: the data had ended before their turn came",
                   counted(closed, "connection")),
       now);
}

// At once: first into the page of the open fragment, the rest into the staging buffer, which is
// empty. Returns how many bytes came.
std::size_t ReceiveSource::receive(FragmentQueue& queue, Time now) {
  const auto direct = decoder_.direct(queue);
  const std::array<iovec, 2> parts{
      {{direct.data(), direct.size()}, {staging_.data(), staging_.size()}}};
  const net::Transfer read = connection_.stream->read(parts);
  switch (read.outcome) {
  case net::Transfer::Outcome::done: break;
  case net::Transfer::Outcome::blocked: unreadable_since_ = now; return 0;
  case net::Transfer::Outcome::failed:
    close_connection(queue, now,
                     fail_errno(ErrorKind::disconnected, "read", read.error).error().text,
                     Ending::too_early);
    return 0;
  case net::Transfer::Outcome::ended:
    acknowledge(queue);
    close_connection(
        queue, now,
        connection_.replaced_by.empty()
            ? "closed by the sender"
            : fmt::format("its sender is connected again, as {}", connection_.replaced_by));
    return 0;
  }
  connection_.begun = true;
  connection_.last_bytes_at = now;
  if (!direct.empty()) decoder_.received(std::min(read.bytes, direct.size()), queue);
  staged_from_ = 0;
  staged_to_ = read.bytes > direct.size() ? read.bytes - direct.size() : 0;
  return read.bytes;
}

void ReceiveSource::count_dropped(const FragmentQueue& queue) {
  std::uint64_t dropped = 0;
  for (std::size_t reason = 0; reason < wire::drop_reasons; ++reason) {
    dropped += queue.numbers().dropped(static_cast<wire::DropReason>(reason));
  }
  acknowledger_.set_dropped(dropped);
}

void ReceiveSource::acknowledge(const FragmentQueue& queue) {
  count_dropped(queue);
  if (connection_.stream && connection_.stream->writable()) acknowledger_.send(*connection_.stream);
}

// The port may have more to do, whatever this source waits for.
ReadResult ReceiveSource::wait_until(Time wake, Time now) const {
  const Time due = options_.port->due();
  if (due <= now) return {.state = ReadState::more};
  return {.state = decoder_.paused() ? ReadState::paused : ReadState::waiting,
          .wake = std::min(wake, due)};
}

// A connection is read up to its end before the next one is: nothing that a sender has
// sent is thrown away because another one came, however long this side did not read.
ReadResult ReceiveSource::read_connections(FragmentQueue& queue, Time now) {
  for (std::size_t bytes = 0; state_ != State::ended && bytes < socket_bytes_per_read;) {
    if (now >= options_.port->due()) options_.port->poll(now);
    if (!connection_.stream) {
      bytes += cost_per_connection;
      begin_next(now);
      if (connection_.stream) continue;
      return wait_until(waiting_.empty() ? never : connection_.place_kept_until, now);
    }
    // A narrow counter says the same value again and again.
    const bool repeats = connection_.sender != 0 && queue.options().counter_bits == 64;
    decoder_.leave_out_below(repeats ? acknowledger_.end() : 0);
    const auto staged = std::span(staging_).subspan(staged_from_, staged_to_ - staged_from_);
    const ReceiveDecoder::Taken taken = decoder_.take(staged, queue);
    staged_from_ += taken.bytes;
    bytes += taken.bytes;
    if (decoder_.bad_checksums() != bad_checksums_logged_) [[unlikely]] {
      bad_checksums_logged_ = decoder_.bad_checksums();
      warn(fmt::format("bad checksum near event {} ({} so far)", queue.next_event(),
                       bad_checksums_logged_),
           now);
    }
    switch (taken.state) {
    case ReceiveDecoder::State::full: return wait_until(never, now);
    case ReceiveDecoder::State::fault: close_for_fault(queue, now); continue;
    case ReceiveDecoder::State::end: end_data(queue, now); continue;
    case ReceiveDecoder::State::hungry: break;
    }
    if (!connection_.stream->readable()) {
      const Time message_due = watch_message(queue, now);
      if (!connection_.stream) continue;
      const Time wake = std::min(message_due, watch_waiting(now));
      if (!connection_.stream->readable()) return wait_until(wake, now);
    }
    bytes += receive(queue, now) + cost_per_call;
  }
  return {.state = state_ == State::ended ? ReadState::finished : ReadState::more};
}

ReadResult ReceiveSource::read(FragmentQueue& queue, Time now) {
  numbers_ = &queue.numbers();
  if (state_ == State::listening) {
    state_ = State::reading;
    join_again(queue, now);
  }
  watch_->poll();
  const ReadResult result = read_connections(queue, now);
  (void)say_who_waits(now);
  acknowledge(queue);
  return result;
}

std::vector<SourceCounter> ReceiveSource::counters() const {
  std::vector<SourceCounter> result{{"connections", connections_},
                                    {"refused", refused_},
                                    {"bad_checksum", decoder_.bad_checksums()},
                                    {"repeats_skipped", decoder_.repeats_skipped()}};
  for (std::size_t i = 1; i < receive_faults; ++i) {
    result.push_back({name(static_cast<ReceiveFault>(i)), faults_[i]});
  }
  return result;
}

} // namespace fanin::source
