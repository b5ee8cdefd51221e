#include "fanin/storage/slice_link.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include <fmt/format.h>

#include "fanin/base/assert.hpp"
#include "fanin/base/counted.hpp"
#include "fanin/base/units.hpp"
#include "fanin/source/receive_format.hpp"

namespace fanin::storage {
namespace {

constexpr Duration pause_least = std::chrono::milliseconds{10};
constexpr Duration pause_most = std::chrono::seconds{1};
constexpr Duration patience = std::chrono::seconds{5}; // for a connection; then for its answer
constexpr Duration check_period = std::chrono::seconds{1}; // for the other host
constexpr std::size_t parts_per_call = 512; // below IOV_MAX
constexpr std::uint64_t bytes_per_poll = 1U << 20;
constexpr EventNumber unknown = ~EventNumber{0};

} // namespace

SliceLink::SliceLink(SliceLinkOptions options, net::Loop& loop, net::Streams& streams,
                     net::StreamWatch& watch)
    : options_(std::move(options)),
      loop_(loop),
      watch_(watch),
      connector_(loop, streams, options_.url,
                 [this] {
                   if (retry_at_ == never) retry_at_ = loop_.now();
                   answered_.start(loop_, loop_.now());
                 }),
      pause_(pause_least),
      lost_at_(loop.now()) {
  if (!options_.first) earlier_end_ = unknown;
  if (!options_.log) options_.log = [](LogLevel, std::string_view) {};
}

bool SliceLink::poll(std::vector<Done>& done) {
  const Time now = loop_.now();
  if (state_ == State::closed && now >= retry_at_) connect(now);
  if (state_ == State::connecting) send_preface(now);
  receive(now);
  take_done(now, done); // what is announced is not sent again
  const bool more = state_ == State::open && send(now);
  watch(now);
  take_done(now, done);
  if (!leaving() || !batches_.empty()) return more;
  if (state_ == State::open) {
    say_pause(now);
  } else if (state_ != State::told && (now >= leave_by_ || given_up(now))) {
    end();
  }
  return more;
}

Time SliceLink::due() const {
  Time due = never;
  switch (state_) {
  case State::closed: due = retry_at_; break;
  case State::connecting: due = deadline_; break;
  case State::unanswered: due = std::min(deadline_, check_at_); break;
  case State::open: return check_at_;
  case State::told: return deadline_;
  case State::left: return never;
  }
  if (batches_.empty()) return std::min(due, leave_by_);
  return connected() ? due : std::min(due, lost_at_ + options_.give_up);
}

// --- the connection ------------------------------------------------------------------------------

void SliceLink::connect(Time now) {
  auto stream = connector_.connect();
  if (!stream) return lose(stream.error().text, now);
  if (*stream == nullptr) {
    retry_at_ = never;
    return;
  }
  if (const auto watched = watch_.add(**stream); !watched) return lose(watched.error().text, now);
  stream_ = std::move(*stream);
  state_ = State::connecting;
  deadline_ = now + patience;
}

void SliceLink::send_preface(Time now) {
  const auto bytes = source::with_own_checksum(source::GroupPreface{
      .reliable = {.common = {.form = source::ReceiveForm::group, .source = options_.source},
                   .sender = options_.sender},
      .run_id = options_.run.id,
      .run = options_.run.number});
  const net::Transfer written = stream_->write(bytes);
  if (written.outcome == net::Transfer::Outcome::blocked) return; // not connected yet
  if (written.bytes != bytes.size()) return lose(written.why(), now);
  state_ = State::unanswered;
  received_ = 0;
  connected_at_ = now;
  check_at_ = now + check_period;
  deadline_ = now + std::max(patience, options_.give_up);
}

void SliceLink::leave() { leave_by_ = loop_.now() + patience; }

// If acknowledgements that nobody has read were here when the socket is closed, its kernel would
// throw away what it has not sent. So the slice closes first.
void SliceLink::say_pause(Time now) {
  const auto pause = source::with_own_checksum(
      source::ReceiveHeader{.kind = source::ReceiveKind::pause, .source = options_.source});
  while (pause_sent_ < pause.size()) {
    const net::Transfer written = stream_->write(std::span(pause).subspan(pause_sent_));
    if (written.outcome == net::Transfer::Outcome::blocked) return;
    if (written.outcome != net::Transfer::Outcome::done) return lose(written.why(), now);
    pause_sent_ += written.bytes;
  }
  stream_->end_writing();
  state_ = State::told;
  deadline_ = now + patience;
}

void SliceLink::end() {
  stream_.reset();
  state_ = State::left;
}

// The kernel itself would go on for a quarter of an hour. A slice that has a connection is not
// away: it answers when there is room for what was sent before. But it may be no slice at all, so
// the connection is not kept for ever, and another address may be right.
void SliceLink::watch(Time now) {
  if (state_ == State::connecting && now >= deadline_) return lose("no answer", now);
  if (state_ == State::told && now >= deadline_) return end();
  if (connected() && now >= check_at_) {
    check_at_ = now + check_period;
    if (stream_->is_unanswered()) return lose("its host or the network does not answer", now);
  }
  if (state_ != State::unanswered) return;
  if (now >= connected_at_ + patience && !std::exchange(silence_logged_, true)) {
    options_.log(LogLevel::warning,
                 fmt::format("{} has not answered for {}, although it is connected; still waiting. "
                             "Its readout unit has no room, or another program is at that address",
                             options_.name, format_duration(patience)));
  }
  if (now < deadline_) return;
  pause_ = pause_least;
  close(now);
}

void SliceLink::lose(std::string_view why, Time now) {
  if (state_ == State::told) {
    return now < leave_by_ ? close(now) : end(); // it may not have heard that, and is told again
  }
  if (state_ == State::open) loss_logged_ = false;
  // It may begin a little later than the group.
  const bool matters = state_ == State::open || !batches_.empty() || now >= lost_at_ + patience;
  if (matters && !loss_logged_) {
    loss_logged_ = lines_.write(options_.log, now, LogLevel::warning,
                                fmt::format("no connection to {} ({}); waiting up to {}",
                                            options_.name, why, format_duration(options_.give_up)));
  }
  close(now);
}

// What the slice itself answers is said even where a loss has been said: that it was not there yet.
void SliceLink::refuse(std::string why, Time now) {
  if (why != refused_) loss_logged_ = false;
  refused_ = std::move(why);
  lose(refused_, now);
}

bool SliceLink::made_progress(Time now) const {
  return previous_made_progress_ || done_end() > answered_end_ || now >= opened_at_ + patience;
}

void SliceLink::close(Time now) {
  if (state_ == State::open || state_ == State::told) {
    // The way may damage the same bytes each time: from the second one in a row on, connections
    // that make no progress count as none. The first may be to a slice that joins its run, and
    // closes once for that.
    const bool none = !made_progress(now);
    const bool again = std::exchange(last_made_no_progress_, none) && none;
    if (!again || batches_.empty()) lost_at_ = now;
    if (!again) pause_ = pause_least;
  } else {
    if (state_ == State::unanswered) lost_at_ += now - connected_at_;
    connector_.failed();
  }
  stream_.reset();
  state_ = State::closed;
  retry_at_ = now + pause_;
  pause_ = std::min(2 * pause_, pause_most);
}

// --- what the slice says -------------------------------------------------------------------------

void SliceLink::receive(Time now) {
  while (connected()) {
    const net::Transfer read = stream_->read(std::span(message_in_).subspan(received_));
    if (read.outcome == net::Transfer::Outcome::blocked) return;
    if (read.outcome != net::Transfer::Outcome::done) return on_end(read, now);
    received_ += read.bytes;
    if (received_ < message_in_.size()) continue;
    received_ = 0;
    take_message(now);
  }
}

// A slice of another version closes without an answer.
void SliceLink::on_end(const net::Transfer& read, Time now) {
  const bool in_order = read.outcome == net::Transfer::Outcome::ended;
  if (state_ == State::told && in_order) return end();
  std::string why = in_order ? "it has closed the connection" : read.why();
  if (state_ == State::unanswered && received_ == 0) {
    why += ", without an answer: its version of fanin may be another one, or it does not allow "
           "this host";
  }
  lose(why, now);
}

void SliceLink::take_message(Time now) {
  if (state_ == State::told) return; // all is done: only the end matters
  if (!source::own_checksum_fits(message_in_))
    return lose("what it sent was damaged on the way, or it is no receive source", now);
  source::ReceiveReply reply;
  std::memcpy(&reply, message_in_.data(), sizeof reply);
  const bool answers = state_ == State::unanswered;
  const auto expected = answers ? source::ReceiveKind::answer : source::ReceiveKind::announced;
  if (reply.mark != source::receive_mark || reply.kind != expected ||
      reply.source != options_.source) {
    return lose("it is no receive source", now);
  }
  if (answers) return on_answer(reply, now);
  take_dropped(reply.dropped, now);
  announced_ = std::max(announced_, reply.end);
  pass_done();
  last_answer_at_ = now;
}

// The ledger of the slice says why, and has the numbers.
void SliceLink::take_dropped(std::uint64_t dropped, Time now) {
  if (std::exchange(dropped_, dropped) >= dropped) return;
  lines_.write(options_.log, now, LogLevel::warning,
               fmt::format("{} has dropped {} from here, or got them too late", options_.name,
                           counted(dropped, "super-fragment")));
}

void SliceLink::on_answer(const source::ReceiveReply& answer, Time now) {
  if (answer.status == source::ReceiveStatus::no_source)
    return refuse(fmt::format("it has no source {:#x}", options_.source), now);
  if (answer.status == source::ReceiveStatus::other_run) {
    if (answer.end == options_.run.number) {
      return refuse(fmt::format("it builds another run {} than this one: start the slices and all "
                                "groups once more, with a new `run.number`",
                                answer.end),
                    now);
    }
    return refuse(fmt::format("it builds run {}, and this group is in run {}: give both the same "
                              "`run.number`",
                              answer.end, options_.run.number),
                  now);
  }
  if (answer.status != source::ReceiveStatus::send) return refuse("its data have ended", now);
  state_ = State::open;
  pause_sent_ = 0;
  connector_.answered();
  last_answer_at_ = opened_at_ = now;
  if (loss_logged_ || silence_logged_) { // no more often than what it ends
    options_.log(LogLevel::info, fmt::format("connected to {}", options_.name));
  }
  loss_logged_ = silence_logged_ = give_up_logged_ = not_sent_logged_ = false;
  refused_.clear();
  take_dropped(answer.dropped, now);
  read_end_ = answer.end;
  // If it has read nothing since it joined, nobody knows what it had read before.
  if (earlier_end_ == unknown) earlier_end_ = read_end_;
  previous_made_progress_ = done_end() > answered_end_;
  answered_end_ = done_end();
  for (const auto& batch : batches_) batch->not_read_from(done_end());
  next_ = to_send_from({});
}

std::string SliceLink::waits_for() const {
  const Duration since = std::chrono::floor<std::chrono::seconds>(loop_.now() - stuck_since());
  if (since < std::chrono::seconds{1}) return options_.name;
  const std::string_view state = !connected()                  ? "is not connected and "
                                 : state_ == State::unanswered ? "does not answer and "
                                                               : "";
  return fmt::format("{}, which {}has announced nothing for {}", options_.name, state,
                     format_duration(since));
}

// --- what it gets --------------------------------------------------------------------------------

void SliceLink::add(std::unique_ptr<SuperFragments> batch) {
  // The slice would drop what goes back, and it would count as delivered.
  FANIN_ASSERT(batch->first() >= end_);
  if (end_ == 0) lost_at_ = state_ == State::unanswered ? connected_at_ : loop_.now();
  end_ = batch->end();
  if (batches_.empty()) last_answer_at_ = loop_.now();
  batches_.push_back(std::move(batch));
  pass_done();
}

// The first message from there on that is to be sent.
SliceLink::Place SliceLink::to_send_from(Place at) const {
  const EventNumber end = done_end();
  for (; at.batch < batches_.size(); at = {.batch = at.batch + 1}) {
    const SuperFragments& batch = *batches_[at.batch];
    while (at.message < batch.messages() && batch.number(at.message) < end) ++at.message;
    if (at.message < batch.messages()) break;
  }
  return at;
}

// A message that was begun has to be sent whole.
void SliceLink::pass_done() {
  if (next_.offset == 0) next_ = to_send_from(next_);
}

bool SliceLink::send(Time now) {
  for (std::uint64_t bytes = 0; next_.batch < batches_.size();) {
    if (bytes >= bytes_per_poll) return true;
    parts_.clear();
    for (Place at = next_; at.batch < batches_.size() && parts_.size() < parts_per_call;
         at = to_send_from({at.batch, at.message + 1})) {
      batches_[at.batch]->append(at.message, at.offset, parts_);
    }
    const net::Transfer written =
        stream_->write(std::span(parts_).first(std::min(parts_.size(), parts_per_call)));
    if (written.outcome == net::Transfer::Outcome::blocked) return false;
    if (written.outcome != net::Transfer::Outcome::done) {
      lose(written.why(), now);
      return false;
    }
    advance(written.bytes);
    bytes += written.bytes;
  }
  return false;
}

void SliceLink::advance(std::uint64_t bytes) {
  while (bytes > 0) {
    SuperFragments& batch = *batches_[next_.batch];
    const std::uint64_t rest = batch.bytes(next_.message) - next_.offset;
    if (bytes < rest) {
      next_.offset += bytes;
      return;
    }
    bytes -= rest;
    batch.sent(next_.message);
    next_ = to_send_from({next_.batch, next_.message + 1});
  }
}

// --- what is done --------------------------------------------------------------------------------

bool SliceLink::given_up(Time now) const {
  return !connected() && now >= lost_at_ + options_.give_up;
}

// The events of the first batch are announced, and the slice was told where the batch ends.
bool SliceLink::first_is_done() const {
  const SuperFragments& batch = *batches_.front();
  // Announced while it is sent once more: the rest of the message must follow.
  if (state_ == State::open && next_.batch == 0 && next_.offset != 0) return false;
  if (batch.end() <= announced_) return true;
  if (batch.events() > 0 && batch.last() >= announced_) return false;
  return next_.batch > 0 || (state_ != State::open && batch.events() > 0);
}

// Of a batch that is done, or given up; once until the next answer.
void SliceLink::log_undelivered(bool is_done) {
  if (std::exchange(is_done ? not_sent_logged_ : give_up_logged_, true)) return;
  options_.log(
      LogLevel::error,
      is_done ? fmt::format("{} has announced events before it got them from here: they count as "
                            "undelivered. It did not wait for them any longer (event.deadline), or "
                            "its readout unit was started again, or an earlier run has sent the "
                            "same numbers",
                            options_.name)
              : fmt::format("{} is given up: no connection for more than {} (slice.give_up); its "
                            "events are lost until it is connected again",
                            options_.name, format_duration(options_.give_up)));
}

// Its pages may go: write() has copied what it took.
void SliceLink::take_done(Time now, std::vector<Done>& done) {
  while (!batches_.empty()) {
    const SuperFragments& batch = *batches_.front();
    const bool is_done = first_is_done();
    if (!is_done && !given_up(now)) return;
    // The slice may have built an event without waiting any longer, or have it from another run.
    const std::size_t undelivered = batch.events_missed(announced_, earlier_end_);
    if (undelivered > 0) log_undelivered(is_done);
    done.push_back({.ticket = batch.ticket(),
                    .undelivered = static_cast<std::uint32_t>(undelivered),
                    .bytes = undelivered == 0 ? batch.payload_bytes() : 0});
    batches_.pop_front();
    if (next_.batch > 0) {
      --next_.batch;
    } else {
      next_ = to_send_from({});
    }
  }
}

} // namespace fanin::storage
