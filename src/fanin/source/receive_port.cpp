#include "fanin/source/receive_port.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "fanin/net/tcp_socket.hpp"

namespace fanin::source {
namespace {

constexpr std::size_t accepts_per_call = 32;
constexpr Duration accept_retry = std::chrono::milliseconds{100};

} // namespace

bool watch_edges(const Descriptor& epoll, int descriptor, bool room) {
  epoll_event event{};
  event.events = EPOLLIN | EPOLLRDHUP | EPOLLET;
  if (room) event.events |= EPOLLOUT;
  event.data.fd = descriptor;
  return epoll_ctl(epoll.get(), EPOLL_CTL_ADD, descriptor, &event) == 0;
}

// It is the first that this side sends, so there is room for it.
bool send_answer(const Descriptor& socket, const ReceiveAnswer& answer) {
  return ::send(socket.get(), &answer, sizeof answer, MSG_NOSIGNAL | MSG_DONTWAIT) ==
         static_cast<ssize_t>(sizeof answer);
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

Result<> ReceivePort::add(Member& member) {
  if (std::ranges::find(members_, &member) != members_.end()) return {};
  if (!listener_) {
    if (auto listening = listen(); !listening) return listening;
  }
  members_.push_back(&member);
  std::erase(ended_, member.id());
  due_ = Time{}; // its senders may be here
  return {};
}

std::size_t ReceivePort::remove(Member& member) {
  std::erase(members_, &member);
  if (!members_.empty() || !listener_) return 0;
  std::size_t closed = std::exchange(newcomers_, {}).size() + std::exchange(early_, {}).size();
  net::Address peer;
  for (int i = 0; i < SOMAXCONN && accept(peer); ++i) ++closed;
  listener_ = Descriptor{};
  return closed;
}

std::size_t ReceivePort::forget(Member& member) {
  std::erase(expected_, &member);
  std::erase(ended_, member.id());
  return remove(member);
}

std::size_t ReceivePort::end(Member& member) {
  ended_.push_back(member.id());
  return remove(member);
}

std::string ReceivePort::listening_url() const {
  return listener_ ? net::address_text(net::local_address(listener_.get())) : std::string{};
}

Descriptor ReceivePort::accept(net::Address& peer) const {
  while (true) {
    Descriptor socket = net::accept_from(listener_.get(), peer);
    if (socket || (errno != EINTR && errno != ECONNABORTED)) return socket;
  }
}

std::size_t ReceivePort::waiting() const {
  std::size_t count = early_.size();
  for (const Member* member : members_) count += member->waiting();
  return count;
}

ReceivePort::Member* ReceivePort::find(SourceId id) const {
  const auto found = std::ranges::find(members_, id, &Member::id);
  return found == members_.end() ? nullptr : *found;
}

bool ReceivePort::expects(SourceId id) const {
  return std::ranges::find(ended_, id) == ended_.end() &&
         std::ranges::find(expected_, id, [](const Member* one) { return one->id(); }) !=
             expected_.end();
}

// Most senders have sent their preface when they are accepted. False: nobody can be accepted now.
bool ReceivePort::accept_one(Time now) {
  Newcomer newcomer;
  newcomer.socket = accept(newcomer.address);
  Member& first = *members_.front();
  if (!newcomer.socket) {
    others_wait_ = errno != EAGAIN; // out of descriptors, for instance: try again later
    if (others_wait_) {
      first.warn(fail_errno(ErrorKind::exhausted, "accept", errno).error().text, now);
    }
    return false;
  }
  const std::string peer = net::address_text(newcomer.address);
  const auto allows = [&](const Member* member) { return member->allows(newcomer.address); };
  if (std::ranges::none_of(expected_, allows)) {
    first.closed(peer, ReceiveFault::not_allowed, now);
    return true;
  }
  net::set_stream_options(newcomer.socket.get(), {});
  newcomer.due = now + preface_time;
  if (read_hello(newcomer, now)) return true;
  if (!watch_edges(epoll_, newcomer.socket.get())) {
    const Error error = fail_errno(ErrorKind::exhausted, "epoll_ctl", errno).error();
    first.refused(fmt::format("{} refused: {}", peer, error.text), now);
    return true;
  }
  newcomers_.push_back(std::move(newcomer));
  return true;
}

// True: it is no newcomer any more.
bool ReceivePort::read_hello(Newcomer& newcomer, Time now) {
  while (!newcomer.hello.complete()) {
    const auto room = newcomer.hello.room();
    const ssize_t got = ::recv(newcomer.socket.get(), room.data(), room.size(), MSG_DONTWAIT);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EAGAIN) return false;
    if (got <= 0) {
      members_.front()->closed(
          net::address_text(newcomer.address),
          newcomer.hello.begun() ? ReceiveFault::cut_short : ReceiveFault::none, now);
      return true;
    }
    newcomer.hello.received(static_cast<std::size_t>(got));
  }
  hand_over(newcomer, now);
  return true;
}

void ReceivePort::hand_over(Newcomer& newcomer, Time now) {
  const ReceiveHello& hello = newcomer.hello;
  std::string peer = net::address_text(newcomer.address);
  if (hello.fault() != ReceiveFault::none) {
    return members_.front()->closed(peer, hello.fault(), now);
  }
  epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, newcomer.socket.get(), nullptr);
  hand_over({.source = hello.source(),
             .address = newcomer.address,
             .arrival = {.socket = std::move(newcomer.socket),
                         .peer = std::move(peer),
                         .version = hello.version(),
                         .sender = hello.sender()}},
            now);
}

void ReceivePort::hand_over(Early early, Time now) {
  Member* const member = find(early.source);
  const auto waiting_for_it = std::ranges::count(early_, early.source, &Early::source);
  if (member == nullptr && expects(early.source) && std::cmp_less(waiting_for_it, waiting_max)) {
    early_.push_back(std::move(early));
  } else if (member == nullptr) {
    refuse(early, now);
  } else if (!member->allows(early.address)) {
    member->closed(early.arrival.peer, ReceiveFault::not_allowed, now);
  } else {
    member->take(std::move(early.arrival), now);
  }
}

void ReceivePort::hand_over_early(Time now) {
  for (Early& early : std::exchange(early_, {})) hand_over(std::move(early), now);
}

// For whom there is no source.
void ReceivePort::refuse(const Early& early, Time now) {
  if (expects(early.source)) {
    return members_.front()->refused(
        fmt::format("{} refused: {} senders of source {:#x}, which is not here yet, wait already",
                    early.arrival.peer, waiting_max, early.source),
        now);
  }
  const bool ended = std::ranges::find(ended_, early.source) != ended_.end();
  if (early.arrival.wants_answer()) {
    send_answer(early.arrival.socket,
                {.version = early.arrival.version,
                 .status = ended ? ReceiveStatus::ended : ReceiveStatus::no_source,
                 .source = early.source});
  }
  if (!ended) return members_.front()->closed(early.arrival.peer, ReceiveFault::other_source, now);
  members_.front()->refused(fmt::format("{} refused: the data of source {:#x} have ended",
                                        early.arrival.peer, early.source),
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
      const auto found = std::ranges::find(newcomers_, descriptor,
                                           [](const Newcomer& one) { return one.socket.get(); });
      if (found != newcomers_.end() && read_hello(*found, now)) newcomers_.erase(found);
    }
  } while (count == static_cast<int>(events.size()));
}

// In the listen queue.
bool ReceivePort::has_next() const {
  pollfd listener{.fd = listener_.get(), .events = POLLIN, .revents = 0};
  return ::poll(&listener, 1, 0) == 1;
}

// The one that has been here the longest, if that is too long. Returns when it will be.
Time ReceivePort::make_way(Time now) {
  const Newcomer& oldest = newcomers_.front();
  if (now < oldest.due) return oldest.due;
  members_.front()->closed(net::address_text(oldest.address), ReceiveFault::no_preface, now);
  newcomers_.erase(newcomers_.begin());
  return now;
}

// Returns when to try again.
Time ReceivePort::accept_all(Time now) {
  const std::size_t most = shared() ? all_waiting_max : waiting_max;
  for (std::size_t i = 0; others_wait_; ++i) {
    if (waiting() >= most) return never; // until a source takes one
    if (i == accepts_per_call) return now;
    if (newcomers_.size() == newcomers_max) {
      others_wait_ = has_next();
      if (!others_wait_) break;
      if (const Time due = make_way(now); due > now) return due;
    }
    if (!accept_one(now)) break;
  }
  return others_wait_ ? now + accept_retry : never;
}

void ReceivePort::poll(Time now) {
  due_ = never;
  if (members_.empty()) return;
  hand_over_early(now);
  look_for_events(now);
  due_ = accept_all(now);
}

} // namespace fanin::source
