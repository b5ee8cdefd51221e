#include "fanin/net/stream/tcp_streams.hpp"

#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>

#include "fanin/base/try.hpp"
#include "fanin/net/tcp_socket.hpp"

namespace fanin::net {
namespace {

using Outcome = Transfer::Outcome;

class TcpStream final : public Stream {
public:
  TcpStream(Descriptor socket, const TcpStreams& maker)
      : Stream(std::move(socket)), maker_(maker) {}

  Transfer read_parts(std::span<const iovec> room) override {
    while (true) {
      const ssize_t got = ::readv(descriptor(), room.data(), static_cast<int>(room.size()));
      if (got > 0) return {.bytes = static_cast<std::size_t>(got)};
      if (got == 0 && lost_ == 0) return {.outcome = Outcome::ended};
      if (got == 0) return {.outcome = Outcome::failed, .error = lost_};
      if (errno == EINTR) continue;
      if (!is_blocked(errno)) return {.outcome = Outcome::failed, .error = errno};
      readable_ = false;
      return {.outcome = Outcome::blocked};
    }
  }
  Transfer write_parts(std::span<const iovec> bytes, bool more_follows) override {
    msghdr header{};
    header.msg_iov = const_cast<iovec*>(bytes.data());
    header.msg_iovlen = bytes.size();
    while (true) {
      const int more = more_follows ? MSG_MORE : 0;
      const ssize_t sent = ::sendmsg(descriptor(), &header, MSG_NOSIGNAL | MSG_DONTWAIT | more);
      if (sent >= 0) return {.bytes = static_cast<std::size_t>(sent)};
      if (errno == EINTR) continue;
      if (!is_blocked(errno)) return failed_write(errno);
      writable_ = false;
      return {.outcome = Outcome::blocked};
    }
  }
  void end_writing() override { (void)::shutdown(descriptor(), SHUT_WR); }
  void end_reading() override {
    (void)::shutdown(descriptor(), SHUT_RD);
    readable_ = true;
  }
  bool has_ended() const override {
    std::byte next{};
    const ssize_t got = ::recv(descriptor(), &next, 1, MSG_PEEK | MSG_DONTWAIT);
    return got == 0 || (got < 0 && errno != EINTR && !is_blocked(errno));
  }
  bool peer_has_left() const override {
    pollfd peer{.fd = descriptor(), .events = POLLRDHUP, .revents = 0};
    return ::poll(&peer, 1, 0) > 0;
  }
  bool is_unanswered() const override { return maker_.is_unanswered(descriptor()); }
  void reset_on_close() override { set_reset_on_close(owned()); }

private:
  static bool is_blocked(int error) { return error == EAGAIN || error == ENOTCONN; }
  // The kernel tells an error once: a read behind it would find an end in order. EPIPE comes behind
  // such an end, or behind an error that was told.
  Transfer failed_write(int error) {
    if (error != EPIPE) lost_ = error;
    return {.outcome = Outcome::failed, .error = error};
  }

  const TcpStreams& maker_;
  int lost_ = 0; // an errno value
};

class TcpListener final : public StreamListener {
public:
  TcpListener(Descriptor socket, const TcpStreams& maker)
      : StreamListener(std::move(socket)), maker_(maker) {}

  Accepted accept() override {
    Accepted accepted;
    Descriptor socket;
    do {
      socket = accept_from(descriptor(), accepted.peer);
    } while (!socket && (errno == EINTR || errno == ECONNABORTED));
    if (socket) {
      set_stream_options(socket.get(), {});
      set_urgent(socket); // what goes back is answers
      accepted.stream = std::make_unique<TcpStream>(std::move(socket), maker_);
    } else if (errno != EAGAIN) {
      accepted.error = errno; // out of descriptors, for instance
    } else {
      readable_ = false;
    }
    return accepted;
  }
  bool has_next() const override {
    pollfd listener{.fd = descriptor(), .events = POLLIN, .revents = 0};
    return ::poll(&listener, 1, 0) == 1;
  }
  std::string url() const override { return address_text(local_address(descriptor())); }

private:
  const TcpStreams& maker_;
};

class TcpWatch final : public StreamWatch {
public:
  explicit TcpWatch(Descriptor epoll) : StreamWatch(std::move(epoll)) {}

  void poll() override {
    readable_ = false; // for a watch that watches this one
    std::array<epoll_event, 16> events;
    int count = 0;
    do {
      count = epoll_wait(descriptor(), events.data(), static_cast<int>(events.size()), 0);
      for (int i = 0; i < count; ++i) {
        const epoll_event& event = events[static_cast<std::size_t>(i)];
        const std::uint32_t what = event.events;
        happened(*static_cast<Watchable*>(event.data.ptr), (what & ~EPOLLOUT) != 0,
                 (what & (EPOLLOUT | EPOLLERR | EPOLLHUP)) != 0);
      }
    } while (count == static_cast<int>(events.size()));
  }

private:
  Result<> begin(Watchable& one) override {
    epoll_event event{};
    event.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET;
    event.data.ptr = &one;
    if (epoll_ctl(descriptor(), EPOLL_CTL_ADD, one.descriptor(), &event) == 0) return {};
    return fail_errno(ErrorKind::exhausted, "epoll_ctl", errno);
  }
  void end(Watchable& one) override {
    (void)epoll_ctl(descriptor(), EPOLL_CTL_DEL, one.descriptor(), nullptr);
  }
};

} // namespace

Result<std::vector<Address>> TcpStreams::addresses_to_listen(const Url& url) {
  return resolve(url, true);
}

Result<std::unique_ptr<StreamListener>> TcpStreams::listen(const Url& url,
                                                           std::span<const Address> addresses) {
  auto socket = FANIN_TRY(bind_and_listen(url, addresses));
  return std::make_unique<TcpListener>(std::move(socket), *this);
}

Result<std::unique_ptr<Stream>> TcpStreams::connect(const Address& address) {
  Descriptor socket = begin_to_connect(address, {});
  if (!socket) return fail(ErrorKind::disconnected, error_text(errno));
  return std::make_unique<TcpStream>(std::move(socket), *this);
}

bool TcpStreams::is_unanswered(int socket) const { return net::is_unanswered(socket); }

Result<std::unique_ptr<StreamWatch>> TcpStreams::make_watch() {
  Descriptor epoll(epoll_create1(EPOLL_CLOEXEC));
  if (!epoll) return fail_errno(ErrorKind::exhausted, "epoll_create1", errno);
  return std::make_unique<TcpWatch>(std::move(epoll));
}

} // namespace fanin::net
