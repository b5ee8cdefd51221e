#include "fanin/source/receive_port.hpp"

#include <algorithm>
#include <fmt/format.h>
#include <ranges>
#include <utility>

#include "fanin/base/assert.hpp"
#include "fanin/base/try.hpp"
#include "fanin/source/own_checksum.hpp"

namespace fanin::source {
namespace {

constexpr std::size_t accepts_per_call = 32;
constexpr int accepts_at_end = 4096; // as many as wait in a listen queue
constexpr Duration accept_retry = std::chrono::milliseconds{100};
constexpr std::size_t known_named_max = 16;

} // namespace

// It is the first that this side sends, so there is room for it.
bool send_answer(net::Stream& stream, const ReceiveReply& answer, bool more_follows) {
  const auto bytes = with_own_checksum(answer);
  return stream.write(bytes, more_follows).bytes == bytes.size();
}

Result<std::shared_ptr<ReceivePort>> ReceivePorts::at(const net::Url& url, net::Streams& streams) {
  if (url.port == 0) return ReceivePort::make(url, streams);
  std::weak_ptr<ReceivePort>& known = ports_[{&streams, url.text()}];
  if (auto port = known.lock()) return port;
  auto port = FANIN_TRY(ReceivePort::make(url, streams));
  known = port;
  return port;
}

Result<std::shared_ptr<ReceivePort>> ReceivePort::make(net::Url url, net::Streams& streams) {
  auto watch = FANIN_TRY(streams.make_watch());
  return std::shared_ptr<ReceivePort>(new ReceivePort(std::move(url), streams, std::move(watch)));
}

ReceivePort::ReceivePort(net::Url url, net::Streams& streams,
                         std::unique_ptr<net::StreamWatch> watch)
    : url_(std::move(url)), streams_(streams), watch_(std::move(watch)) {}

Result<> ReceivePort::prepare() {
  if (listener_) return {};
  if (addresses_.empty()) addresses_ = FANIN_TRY(streams_.addresses_to_listen(url_));
  auto listener = FANIN_TRY(streams_.listen(url_, addresses_));
  FANIN_TRY(watch_->add(*listener));
  listener_ = std::move(listener);
  due_ = Time{};
  return {};
}

// --- its sources ---------------------------------------------------------------------------------

void ReceivePort::expect(Member& member) { sources_.push_back({.member = &member}); }

// Nobody may wake after this: those who wait are told at once.
void ReceivePort::withdraw(Member& member) {
  const std::vector<Arrival> early = std::move(place_of(member).early);
  std::erase_if(sources_, [&](const Place& place) { return place.member == &member; });
  for (const Arrival& arrival : early) refuse(arrival, false, polled_at_);
  close_if_over();
}

Result<> ReceivePort::add(Member& member) {
  Place& place = place_of(member);
  FANIN_TRY(prepare());
  place.state = State::active;
  place.absence_logged = false;
  due_ = Time{}; // its senders may have come
  return {};
}

std::size_t ReceivePort::end_of_data(Member& member) {
  place_of(member).state = State::ended;
  return close_if_over();
}

// Returns how many connections were closed.
std::size_t ReceivePort::close_if_over() {
  const auto has_ended = [](const Place& place) { return place.state == State::ended; };
  if (!listener_ || !std::ranges::all_of(sources_, has_ended)) return 0;
  std::size_t closed = std::exchange(unidentified_, {}).size();
  for (int i = 0; i < accepts_at_end && listener_->accept().stream; ++i) ++closed;
  listener_.reset();
  return closed;
}

ReceivePort::Place* ReceivePort::find(SourceId id) {
  const auto found =
      std::ranges::find(sources_, id, [](const Place& place) { return place.member->id(); });
  return found == sources_.end() ? nullptr : &*found;
}

// For messages.
std::string ReceivePort::known_sources() const {
  std::string text;
  for (const Place& place : sources_ | std::views::take(known_named_max)) {
    text += fmt::format("{}{:#x}", text.empty() ? "" : ", ", place.member->id());
  }
  return sources_.size() > known_named_max ? text + ", ..." : text;
}

ReceivePort::Place& ReceivePort::place_of(const Member& member) {
  const auto found = std::ranges::find(sources_, &member, &Place::member);
  FANIN_ASSERT(found != sources_.end());
  return *found;
}

// Of the active ones; null: there is none.
ReceivePort::Member* ReceivePort::first() const {
  const auto found = std::ranges::find_if(
      sources_, [](const Place& place) { return place.state == State::active; });
  return found == sources_.end() ? nullptr : found->member;
}

bool ReceivePort::shared() const {
  return std::ranges::count_if(sources_,
                               [](const Place& place) { return place.state != State::ended; }) > 1;
}

std::size_t ReceivePort::waiting() const {
  std::size_t count = 0;
  for (const Place& place : sources_) {
    if (place.state == State::active) count += place.member->waiting();
  }
  return count;
}

// --- connections ---------------------------------------------------------------------------------

std::string ReceivePort::listening_url() const {
  return listener_ ? listener_->url() : std::string{};
}

// Most senders have sent their preface when they are accepted. False: nobody can be accepted now.
bool ReceivePort::accept_one(Time now) {
  net::StreamListener::Accepted accepted = listener_->accept();
  if (!accepted.stream) {
    if (accepted.error != 0) {
      first()->warn(fail_errno(ErrorKind::exhausted, "accept", accepted.error).error().text, now);
    }
    return false;
  }
  const std::string peer = net::address_text(accepted.peer);
  const auto allows = [&](const Place& place) { return place.member->allows(accepted.peer); };
  if (std::ranges::none_of(sources_, allows)) {
    first()->closed(peer, ReceiveFault::not_allowed, "", now);
    return true;
  }
  UnidentifiedSender sender{
      .arrival = {.stream = std::move(accepted.stream), .address = accepted.peer, .peer = peer},
      .due = now + preface_time};
  if (read_preface(sender, now)) return true;
  if (const auto watched = watch_->add(*sender.arrival.stream); !watched) {
    first()->refused(fmt::format("{} refused: {}", peer, watched.error().text), now);
    return true;
  }
  unidentified_.push_back(std::move(sender));
  return true;
}

// True: it is not unidentified any more.
bool ReceivePort::read_preface(UnidentifiedSender& sender, Time now) {
  while (!sender.preface.complete()) {
    const net::Transfer read = sender.arrival.stream->read(sender.preface.room());
    if (read.outcome == net::Transfer::Outcome::blocked) return false;
    if (read.outcome != net::Transfer::Outcome::done) {
      first()->closed(sender.arrival.peer,
                      sender.preface.begun() ? ReceiveFault::cut_short : ReceiveFault::none, "",
                      now);
      return true;
    }
    sender.preface.received(read.bytes);
  }
  hand_over(sender, now);
  return true;
}

void ReceivePort::hand_over(UnidentifiedSender& sender, Time now) {
  const PrefaceReader& preface = sender.preface;
  Arrival& arrival = sender.arrival;
  if (preface.fault() != ReceiveFault::none) {
    const bool other = preface.fault() == ReceiveFault::other_version;
    return first()->closed(arrival.peer, preface.fault(),
                           other ? fmt::format("version {}", preface.version()) : "", now);
  }
  watch_->remove(*arrival.stream);
  arrival.source = preface.source();
  arrival.sender = preface.sender();
  arrival.run = preface.run();
  hand_over(std::move(arrival), now);
}

void ReceivePort::hand_over(Arrival arrival, Time now) {
  Place* const place = find(arrival.source);
  if (place == nullptr || place->state == State::ended) {
    refuse(arrival, place != nullptr, now);
  } else if (!place->member->allows(arrival.address)) {
    place->member->closed(arrival.peer, ReceiveFault::not_allowed, "", now);
  } else if (place->state == State::active) {
    place->member->take(std::move(arrival), now);
  } else {
    keep(std::move(arrival), *place, now);
  }
}

// Until its source is active.
void ReceivePort::keep(Arrival arrival, Place& place, Time now) {
  if (arrival.reliable()) {
    std::erase_if(place.early,
                  [&](const Arrival& other) { return other.sender == arrival.sender; });
  }
  if (!has_early_place(place) && !std::exchange(closed_early_dropped_, true))
    drop_closed_early(now);
  Member* const told = first();
  if (!has_early_place(place)) {
    if (told == nullptr) return;
    return told->refused(fmt::format("{} refused: {} senders wait already for source {:#x}, which "
                                     "has not joined the run",
                                     arrival.peer, place.early.size(), arrival.source),
                         now);
  }
  if (told != nullptr && !std::exchange(place.absence_logged, true)) {
    told->warn(fmt::format("{} waits for source {:#x}, which has not joined the run", arrival.peer,
                           arrival.source),
               now);
  }
  place.early.push_back(std::move(arrival));
}

bool ReceivePort::has_early_place(const Place& place) const {
  const auto expected = std::ranges::count_if( // with it
      sources_, [](const Place& one) { return one.state == State::expected; });
  const std::size_t share = early_max / static_cast<std::size_t>(expected);
  return place.early.size() < std::max<std::size_t>(share, 1);
}

void ReceivePort::drop_closed_early(Time now) {
  for (Place& place : sources_) {
    std::erase_if(place.early, [&](const Arrival& arrival) {
      if (!arrival.stream->has_ended()) return false;
      if (Member* const told = first()) told->closed(arrival.peer, ReceiveFault::none, "", now);
      return true;
    });
  }
}

// For whom there is no source, or none any more.
void ReceivePort::refuse(const Arrival& arrival, bool ended, Time now) {
  if (arrival.reliable()) {
    send_answer(*arrival.stream, {.status = ended ? ReceiveStatus::ended : ReceiveStatus::no_source,
                                  .source = arrival.source});
  }
  Member* const told = first();
  if (told == nullptr) return;
  if (!ended) {
    return told->closed(
        arrival.peer, ReceiveFault::other_source,
        fmt::format("of {:#x}; at this address: {}", arrival.source, known_sources()), now);
  }
  told->refused(
      fmt::format("{} refused: the data of source {:#x} have ended", arrival.peer, arrival.source),
      now);
}

void ReceivePort::read_prefaces(Time now) {
  std::erase_if(unidentified_, [&](UnidentifiedSender& sender) {
    return sender.arrival.stream->readable() && read_preface(sender, now);
  });
}

// The oldest one, if it is old enough. Returns when it will be.
Time ReceivePort::evict_oldest(Time now) {
  const UnidentifiedSender& oldest = unidentified_.front();
  if (now < oldest.due) return oldest.due;
  first()->closed(oldest.arrival.peer, ReceiveFault::no_preface, "", now);
  unidentified_.erase(unidentified_.begin());
  return now;
}

// Returns when to try again.
Time ReceivePort::accept_all(Time now) {
  const std::size_t most = shared() ? all_waiting_max : waiting_max;
  for (std::size_t i = 0; listener_->readable(); ++i) {
    if (waiting() >= most) return never; // until a source takes one
    if (i == accepts_per_call) return now;
    if (unidentified_.size() >= unidentified_max && listener_->has_next()) {
      if (const Time due = evict_oldest(now); due > now) return due;
    }
    if (!accept_one(now)) break;
  }
  return listener_->readable() ? now + accept_retry : never;
}

void ReceivePort::poll(Time now) {
  due_ = never;
  polled_at_ = now;
  closed_early_dropped_ = false;
  watch_->poll();
  if (first() == nullptr) return; // there is nobody to tell
  for (Place& place : sources_) {
    if (place.state != State::active) continue;
    for (Arrival& early : std::exchange(place.early, {})) place.member->take(std::move(early), now);
  }
  read_prefaces(now);
  due_ = accept_all(now);
}

} // namespace fanin::source
