#include "fanin/bench/bare_socket.hpp"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <sys/socket.h>

#include <cerrno>

#include "fanin/base/try.hpp"
#include "fanin/net/tcp_socket.hpp"

namespace fanin::bench {
namespace {

constexpr int socket_spins = 100; // before giving the core away

Result<Descriptor> make_socket(const net::Address& address, const std::string& congestion) {
  Descriptor made{socket(address.get()->sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0)};
  if (made.get() < 0) return fail_errno(ErrorKind::exhausted, "socket", errno);
  const int on = 1;
  (void)setsockopt(made.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  (void)setsockopt(made.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (!congestion.empty() && setsockopt(made.get(), IPPROTO_TCP, TCP_CONGESTION, congestion.data(),
                                        static_cast<socklen_t>(congestion.size())) != 0) {
    return fail_errno(ErrorKind::unsupported, "congestion control " + congestion, errno);
  }
  return made;
}

} // namespace

Result<Descriptor> listen_at(const net::Url& url, const std::string& congestion) {
  const auto addresses = FANIN_TRY(net::resolve(url, true));
  const net::Address& address = addresses.front();
  auto listener = FANIN_TRY(make_socket(address, congestion));
  if (bind(listener.get(), address.get(), address.length) != 0 ||
      listen(listener.get(), 512) != 0) {
    return fail_errno(ErrorKind::refused, "listening at " + url.text(), errno);
  }
  return listener;
}

Result<Descriptor> accept_one(const Descriptor& listener) {
  Descriptor made{accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC)};
  if (made.get() < 0) return fail_errno(ErrorKind::internal, "accept", errno);
  const int on = 1;
  (void)setsockopt(made.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  return made;
}

Result<Descriptor> connect_to(const net::Url& url, const std::string& congestion) {
  const auto addresses = FANIN_TRY(net::resolve(url, false));
  const net::Address& address = addresses.front();
  auto made = FANIN_TRY(make_socket(address, congestion));
  if (connect(made.get(), address.get(), address.length) != 0)
    return fail_errno(ErrorKind::refused, "connecting to " + url.text(), errno);
  return made;
}

Result<Descriptor> connect_to(const std::string& url, const std::string& congestion) {
  const auto parsed = FANIN_TRY(net::Url::parse(url));
  return connect_to(parsed, congestion);
}

std::string listening_address(const Descriptor& listener) {
  return net::address_text(net::local_address(listener.get()));
}

Result<> write_all(int socket, std::span<const std::byte> bytes, bool spin) {
  for (int refused = 0; !bytes.empty();) {
    const ssize_t written =
        send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL | (spin ? MSG_DONTWAIT : 0));
    if (written < 0 && (errno == EAGAIN || errno == EINTR)) {
      if (++refused % socket_spins == 0) sched_yield();
      continue;
    }
    if (written <= 0) return fail_errno(ErrorKind::disconnected, "write", errno);
    bytes = bytes.subspan(static_cast<std::size_t>(written));
  }
  return {};
}

} // namespace fanin::bench
