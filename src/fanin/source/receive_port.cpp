#include "fanin/source/receive_port.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "fanin/base/assert.hpp"
#include "fanin/net/tcp_socket.hpp"
#include "fanin/source/own_checksum.hpp"

namespace fanin::source {
namespace {

constexpr std::size_t accepts_per_call = 32;
constexpr Duration accept_retry = std::chrono::milliseconds{100};

// The peer has closed, and everything that it has sent was read.
bool has_gone(const Descriptor& socket) {
  std::byte next{};
  const ssize_t got = ::recv(socket.get(), &next, 1, MSG_PEEK | MSG_DONTWAIT);
  return got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR);
}

} // namespace

bool watch_edges(const Descriptor& epoll, int descriptor, bool room) {
  epoll_event event{};
  event.events = EPOLLIN | EPOLLRDHUP | EPOLLET;
  if (room) event.events |= EPOLLOUT;
  event.data.fd = descriptor;
  return epoll_ctl(epoll.get(), EPOLL_CTL_ADD, descriptor, &event) == 0;
}

// It is the first that this side sends, so there is room for it.
bool send_answer(const Descriptor& socket, const ReceiveReply& answer, bool more_follows) {
  const int more = more_follows ? MSG_MORE : 0;
  const auto bytes = with_own_checksum(answer);
  return ::send(socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT | more) ==
         static_cast<ssize_t>(bytes.size());
}

Result<std::shared_ptr<ReceivePort>> ReceivePorts::at(const net::Url& url) {
  if (url.port == 0) return ReceivePort::make(url);
  std::weak_ptr<ReceivePort>& known = ports_[url.text()];
  if (auto port = known.lock()) return port;
  auto made = ReceivePort::make(url);
  if (made) known = *made;
  return made;
}

Result<std::shared_ptr<ReceivePort>> ReceivePort::make(net::Url url, LookUp look_up) {
  Descriptor epoll(epoll_create1(EPOLL_CLOEXEC));
  if (!epoll) return fail_errno(ErrorKind::internal, "epoll_create1", errno);
  return std::shared_ptr<ReceivePort>(
      new ReceivePort(std::move(url), std::move(look_up), std::move(epoll)));
}

ReceivePort::ReceivePort(net::Url url, LookUp look_up, Descriptor epoll)
    : url_(std::move(url)), look_up_(std::move(look_up)), epoll_(std::move(epoll)) {}

Result<> ReceivePort::prepare() {
  auto addresses = look_up_ ? look_up_(url_) : net::resolve(url_, true);
  if (!addresses) return std::unexpected(addresses.error());
  addresses_ = std::move(*addresses);
  return {};
}

Result<> ReceivePort::listen() {
  if (addresses_.empty()) {
    if (auto prepared = prepare(); !prepared) return prepared;
  }
  auto socket = net::bind_and_listen(url_, addresses_);
  if (!socket) return std::unexpected(socket.error());
  if (!watch_edges(epoll_, socket->get()))
    return fail_errno(ErrorKind::internal, "epoll_ctl", errno);
  listener_ = std::move(*socket);
  others_wait_ = true;
  due_ = Time{};
  return {};
}

// --- its sources ---------------------------------------------------------------------------------

void ReceivePort::expect(Member& member) { sources_.push_back({.member = &member}); }

// Nobody may wake after this: those who wait are told at once.
void ReceivePort::withdraw(Member& member) {
  std::erase_if(sources_, [&](const Place& place) { return place.member == &member; });
  hand_over_early(polled_at_);
  close_if_over();
}

Result<> ReceivePort::add(Member& member) {
  Place& place = place_of(member);
  if (place.state == State::here) return {};
  if (!listener_) {
    if (auto listening = listen(); !listening) return listening;
  }
  place = {.member = &member, .state = State::here};
  sources_added_ = true;
  due_ = Time{}; // its senders may be here
  return {};
}

std::size_t ReceivePort::end_of_data(Member& member) {
  Place& place = place_of(member);
  FANIN_ASSERT(place.state == State::here);
  place.state = State::ended;
  return close_if_over();
}

// Returns how many connections were closed.
std::size_t ReceivePort::close_if_over() {
  const auto has_ended = [](const Place& place) { return place.state == State::ended; };
  if (!listener_ || !std::ranges::all_of(sources_, has_ended)) return 0;
  FANIN_ASSERT(early_.empty());
  std::size_t closed = std::exchange(unidentified_, {}).size();
  net::Address peer;
  for (int i = 0; i < SOMAXCONN && accept(peer); ++i) ++closed;
  listener_ = Descriptor{};
  return closed;
}

ReceivePort::Place* ReceivePort::find(SourceId id) {
  const auto found =
      std::ranges::find(sources_, id, [](const Place& place) { return place.member->id(); });
  return found == sources_.end() ? nullptr : &*found;
}

ReceivePort::Place& ReceivePort::place_of(const Member& member) {
  const auto found = std::ranges::find(sources_, &member, &Place::member);
  FANIN_ASSERT(found != sources_.end());
  return *found;
}

// Of those that are here; null: none is.
ReceivePort::Member* ReceivePort::first() const {
  const auto found = std::ranges::find(sources_, State::here, &Place::state);
  return found == sources_.end() ? nullptr : found->member;
}

bool ReceivePort::shared() const {
  return std::ranges::count_if(sources_,
                               [](const Place& place) { return place.state != State::ended; }) > 1;
}

std::size_t ReceivePort::waiting() const {
  std::size_t count = 0;
  for (const Place& place : sources_) {
    if (place.state == State::here) count += place.member->waiting();
  }
  return count;
}

// --- connections ---------------------------------------------------------------------------------

std::string ReceivePort::listening_url() const {
  return listener_ ? net::address_text(net::local_address(listener_.get())) : std::string{};
}

Descriptor ReceivePort::accept(net::Address& peer) const {
  while (true) {
    Descriptor socket = net::accept_from(listener_.get(), peer);
    if (socket || (errno != EINTR && errno != ECONNABORTED)) return socket;
  }
}

// Most senders have sent their preface when they are accepted. False: nobody can be accepted now.
bool ReceivePort::accept_one(Time now) {
  UnidentifiedSender sender;
  sender.socket = accept(sender.address);
  if (!sender.socket) {
    others_wait_ = errno != EAGAIN; // out of descriptors, for instance: try again later
    if (others_wait_) {
      first()->warn(fail_errno(ErrorKind::exhausted, "accept", errno).error().text, now);
    }
    return false;
  }
  const std::string peer = net::address_text(sender.address);
  const auto allows = [&](const Place& place) { return place.member->allows(sender.address); };
  if (std::ranges::none_of(sources_, allows)) {
    first()->closed(peer, ReceiveFault::not_allowed, now);
    return true;
  }
  net::set_stream_options(sender.socket.get(), {});
  net::set_urgent(sender.socket); // answers and acknowledgements
  sender.due = now + preface_time;
  if (read_hello(sender, now)) return true;
  if (!watch_edges(epoll_, sender.socket.get())) {
    const Error error = fail_errno(ErrorKind::exhausted, "epoll_ctl", errno).error();
    first()->refused(fmt::format("{} refused: {}", peer, error.text), now);
    return true;
  }
  unidentified_.push_back(std::move(sender));
  return true;
}

// True: it is not unidentified any more.
bool ReceivePort::read_hello(UnidentifiedSender& sender, Time now) {
  while (!sender.hello.complete()) {
    const auto room = sender.hello.room();
    const ssize_t got = ::recv(sender.socket.get(), room.data(), room.size(), MSG_DONTWAIT);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EAGAIN) return false;
    if (got <= 0) {
      first()->closed(net::address_text(sender.address),
                      sender.hello.begun() ? ReceiveFault::cut_short : ReceiveFault::none, now);
      return true;
    }
    sender.hello.received(static_cast<std::size_t>(got));
  }
  hand_over(sender, now);
  return true;
}

void ReceivePort::hand_over(UnidentifiedSender& sender, Time now) {
  const ReceiveHello& hello = sender.hello;
  std::string peer = net::address_text(sender.address);
  if (hello.fault() == ReceiveFault::other_version) {
    peer += fmt::format(" (version {})", hello.version());
  }
  if (hello.fault() != ReceiveFault::none) return first()->closed(peer, hello.fault(), now);
  epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, sender.socket.get(), nullptr);
  hand_over({.source = hello.source(),
             .address = sender.address,
             .arrival = {.socket = std::move(sender.socket),
                         .peer = std::move(peer),
                         .sender = hello.sender()}},
            now);
}

void ReceivePort::hand_over(Sender sender, Time now) {
  Place* const place = find(sender.source);
  if (place == nullptr || place->state == State::ended) {
    refuse(sender, place != nullptr, now);
  } else if (!place->member->allows(sender.address)) {
    place->member->closed(sender.arrival.peer, ReceiveFault::not_allowed, now);
  } else if (place->state == State::here) {
    place->member->take(std::move(sender.arrival), now);
  } else {
    keep(std::move(sender), *place, now);
  }
}

void ReceivePort::hand_over_early(Time now) {
  sources_added_ = false;
  for (Sender& sender : std::exchange(early_, {})) hand_over(std::move(sender), now);
}

// Until its source is here.
void ReceivePort::keep(Sender sender, Place& place, Time now) {
  const std::uint64_t number = sender.arrival.sender;
  if (number != 0) {
    std::erase_if(early_, [&](const Sender& other) {
      return other.source == sender.source && other.arrival.sender == number;
    });
  }
  if (!has_early_place(sender.source) && !std::exchange(closed_early_dropped_, true))
    drop_closed_early(now);
  Member* const told = first();
  if (!has_early_place(sender.source)) {
    if (told == nullptr) return;
    return told->refused(fmt::format("{} refused: {} senders wait already for source {:#x}, which "
                                     "has not joined the run",
                                     sender.arrival.peer, early_senders(sender.source),
                                     sender.source),
                         now);
  }
  if (told != nullptr && !std::exchange(place.absence_logged, true)) {
    told->warn(fmt::format("{} waits for source {:#x}, which has not joined the run",
                           sender.arrival.peer, sender.source),
               now);
  }
  early_.push_back(std::move(sender));
}

std::size_t ReceivePort::early_senders(SourceId source) const {
  return static_cast<std::size_t>(std::ranges::count(early_, source, &Sender::source));
}

bool ReceivePort::has_early_place(SourceId source) const {
  const auto expected = std::ranges::count(sources_, State::expected, &Place::state); // with it
  const std::size_t share = early_max / static_cast<std::size_t>(expected);
  return early_senders(source) < std::max<std::size_t>(share, 1);
}

void ReceivePort::drop_closed_early(Time now) {
  std::erase_if(early_, [&](const Sender& sender) {
    if (!has_gone(sender.arrival.socket)) return false;
    if (Member* const told = first()) told->closed(sender.arrival.peer, ReceiveFault::none, now);
    return true;
  });
}

// For whom there is no source, or none any more.
void ReceivePort::refuse(const Sender& sender, bool ended, Time now) {
  if (sender.arrival.reliable()) {
    send_answer(sender.arrival.socket,
                {.status = ended ? ReceiveStatus::ended : ReceiveStatus::no_source,
                 .source = sender.source});
  }
  Member* const told = first();
  if (told == nullptr) return;
  if (!ended) return told->closed(sender.arrival.peer, ReceiveFault::other_source, now);
  told->refused(fmt::format("{} refused: the data of source {:#x} have ended", sender.arrival.peer,
                            sender.source),
                now);
}

void ReceivePort::look_for_events(Time now) {
  std::array<epoll_event, 16> events;
  int count = 0;
  do {
    count = epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), 0);
    for (int i = 0; i < count; ++i) {
      const int descriptor = events[static_cast<std::size_t>(i)].data.fd;
      if (descriptor == listener_.get()) others_wait_ = true;
      const auto found =
          std::ranges::find(unidentified_, descriptor,
                            [](const UnidentifiedSender& one) { return one.socket.get(); });
      if (found != unidentified_.end() && read_hello(*found, now)) unidentified_.erase(found);
    }
  } while (count == static_cast<int>(events.size()));
}

// In the listen queue.
bool ReceivePort::has_next() const {
  pollfd listener{.fd = listener_.get(), .events = POLLIN, .revents = 0};
  return ::poll(&listener, 1, 0) == 1;
}

// The one that has been here the longest, if that is too long. Returns when it will be.
Time ReceivePort::evict_oldest(Time now) {
  const UnidentifiedSender& oldest = unidentified_.front();
  if (now < oldest.due) return oldest.due;
  first()->closed(net::address_text(oldest.address), ReceiveFault::no_preface, now);
  unidentified_.erase(unidentified_.begin());
  return now;
}

// Returns when to try again.
Time ReceivePort::accept_all(Time now) {
  const std::size_t most = shared() ? all_waiting_max : waiting_max;
  for (std::size_t i = 0; others_wait_; ++i) {
    if (waiting() >= most) return never; // until a source takes one
    if (i == accepts_per_call) return now;
    if (unidentified_.size() == unidentified_max) {
      others_wait_ = has_next();
      if (!others_wait_) break;
      if (const Time due = evict_oldest(now); due > now) return due;
    }
    if (!accept_one(now)) break;
  }
  return others_wait_ ? now + accept_retry : never;
}

void ReceivePort::poll(Time now) {
  due_ = never;
  polled_at_ = now;
  closed_early_dropped_ = false;
  if (first() == nullptr) return; // there is nobody to tell
  if (sources_added_) hand_over_early(now);
  look_for_events(now);
  due_ = accept_all(now);
}

} // namespace fanin::source
