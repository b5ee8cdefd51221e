#include "fanin/net/tcp_socket.hpp"

#include <linux/pkt_sched.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/ioctl.h>

#include <algorithm>
#include <fstream>

#include <fmt/format.h>

namespace fanin::net {
namespace {

constexpr std::uint16_t first_free_port = 1024;

void set(int socket, int level, int option, int value) {
  (void)setsockopt(socket, level, option, &value, sizeof value);
}

Result<Descriptor> bind_and_listen_at(const Url& url, const Address& address) {
  Descriptor socket(
      ::socket(address.storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!socket) return fail_errno(ErrorKind::internal, fmt::format("{}: socket", url.text()), errno);
  const int on = 1;
  const int off = 0;
  // A restart need not wait until old connections have timed out.
  (void)setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (address.storage.ss_family == AF_INET6) { // [::] takes IPv4 too, whatever the host's default
    (void)setsockopt(socket.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
  }
  if (::bind(socket.get(), address.get(), address.length) == 0 &&
      ::listen(socket.get(), SOMAXCONN) == 0) {
    return socket;
  }
  const int error = errno;
  if (error == EADDRINUSE) {
    return fail(
        ErrorKind::refused,
        fmt::format("{}: the port is in use; `ss -ltnp` shows by whom. Choose another one, or "
                    "none for any that is free",
                    url.text()));
  }
  if (error == EACCES && address.port() < first_free_port) {
    return fail(ErrorKind::refused,
                fmt::format("{}: ports below {} are for programs with the capability "
                            "CAP_NET_BIND_SERVICE. Choose a higher one",
                            url.text(), first_free_port));
  }
  if (error == EADDRNOTAVAIL) {
    return fail(
        ErrorKind::refused,
        fmt::format("{}: not an address of this host; `ip address` lists them", url.text()));
  }
  return fail_errno(ErrorKind::refused, fmt::format("{}: listen", url.text()), error);
}

// To connect to a wildcard is to connect to this host.
bool is_bound_to(int socket, const Address& address) {
  const Address here = local_address(socket);
  return here.port() == address.port() &&
         (here.host() == address.host() || is_wildcard(address.host()));
}

} // namespace

Result<Descriptor> bind_and_listen(const Url& url, std::span<const Address> addresses) {
  Result<Descriptor> socket = fail(ErrorKind::not_found, fmt::format("{}: no address", url.text()));
  for (const Address& address : addresses) {
    socket = bind_and_listen_at(url, address);
    if (socket) break;
  }
  return socket;
}

Descriptor begin_to_connect(const Address& address, const StreamOptions& options) {
  Descriptor socket(
      ::socket(address.storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!socket) return {};
  set_stream_options(socket.get(), options);
  const bool begun =
      ::connect(socket.get(), address.get(), address.length) == 0 || errno == EINPROGRESS;
  if (begun && !is_bound_to(socket.get(), address)) return socket;
  const int error = begun ? ECONNREFUSED : errno; // closing the socket may change it
  socket.reset();
  errno = error;
  return {};
}

int connect_error(int socket) {
  int error = 0;
  socklen_t size = sizeof error;
  (void)getsockopt(socket, SOL_SOCKET, SO_ERROR, &error, &size);
  return error;
}

Address local_address(int socket) {
  Address address;
  address.length = sizeof address.storage;
  if (getsockname(socket, reinterpret_cast<sockaddr*>(&address.storage), &address.length) != 0) {
    address.length = 0;
  }
  return address;
}

Address peer_address(int socket) {
  Address address;
  address.length = sizeof address.storage;
  if (getpeername(socket, reinterpret_cast<sockaddr*>(&address.storage), &address.length) != 0) {
    address.length = 0;
  }
  return address;
}

Descriptor accept_from(int listener, Address& peer) {
  peer.length = sizeof peer.storage;
  Descriptor socket(accept4(listener, reinterpret_cast<sockaddr*>(&peer.storage), &peer.length,
                            SOCK_NONBLOCK | SOCK_CLOEXEC));
  if (!socket) peer.length = 0;
  return socket;
}

// Without std::error_category, whose virtual call the sanitizers check through a pipe: this is
// needed where no descriptor is left.
std::string error_text(int error) {
  char text[128];
  return ::strerror_r(error, text, sizeof text);
}

void set_reset_on_close(const Descriptor& socket) {
  if (!socket) return;
  const linger now{1, 0};
  (void)setsockopt(socket.get(), SOL_SOCKET, SO_LINGER, &now, sizeof now);
}

Result<> check_congestion(const std::string& name) {
  const Descriptor probe(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!probe || setsockopt(probe.get(), IPPROTO_TCP, TCP_CONGESTION, name.data(),
                           static_cast<socklen_t>(name.size())) == 0) {
    return {};
  }
  const int error = errno;
  std::string there;
  std::ifstream file("/proc/sys/net/ipv4/tcp_available_congestion_control");
  std::getline(file, there);
  return fail(ErrorKind::usage, fmt::format("congestion control \"{}\": {}; this kernel has: {}",
                                            name, error_text(error), there));
}

bool is_unanswered(int socket) {
  constexpr std::uint8_t tries = 7; // the first after 0.2 s, each twice as late as the one before
  tcp_info info{};
  socklen_t size = sizeof info;
  return getsockopt(socket, IPPROTO_TCP, TCP_INFO, &info, &size) == 0 &&
         std::max(info.tcpi_retransmits, info.tcpi_probes) >= tries; // probes: nothing has left
}

std::uint64_t unacknowledged(int socket) {
  int bytes = 0;
  return ::ioctl(socket, SIOCOUTQ, &bytes) == 0 && bytes > 0 ? static_cast<std::uint64_t>(bytes)
                                                             : 0;
}

bool has_unread(int socket) {
  int bytes = 0;
  return ::ioctl(socket, FIONREAD, &bytes) == 0 && bytes > 0;
}

// The class of packets (IP_TOS) sets it too, so it is set later.
void set_urgent(const Descriptor& socket) {
  set(socket.get(), SOL_SOCKET, SO_PRIORITY, TC_PRIO_INTERACTIVE);
}

void set_stream_options(int socket, const StreamOptions& options) {
  // Pieri 2006 wants Nagle's algorithm on for data, so that small writes gather, and off for
  // control, which it delays by up to 10 ms. Here each flush gathers itself and writes all it has
  // at once, with MSG_MORE where it has to write in parts: what Nagle would hold back for data is
  // not there, and the end of a batch must not wait for an acknowledgement. So it is off for both.
  set(socket, IPPROTO_TCP, TCP_NODELAY, 1);
  // BBR, a common default, is a third slower on a busy host; where the wanted one is not available,
  // the default stays.
  const std::string& congestion = options.congestion;
  if (!congestion.empty()) {
    (void)setsockopt(socket, IPPROTO_TCP, TCP_CONGESTION, congestion.data(),
                     static_cast<socklen_t>(congestion.size()));
  }
  if (options.dscp != 0) { // the upper 6 bits of the byte; a socket has the option of its family
    set(socket, IPPROTO_IP, IP_TOS, options.dscp << 2);
    set(socket, IPPROTO_IPV6, IPV6_TCLASS, options.dscp << 2);
  }
  // A peer whose host lost its power says nothing: noticed after about half a minute. A frozen
  // process still answers these, by its kernel.
  set(socket, SOL_SOCKET, SO_KEEPALIVE, 1);
  set(socket, IPPROTO_TCP, TCP_KEEPIDLE, 10);
  set(socket, IPPROTO_TCP, TCP_KEEPINTVL, 5);
  set(socket, IPPROTO_TCP, TCP_KEEPCNT, 4);
}

} // namespace fanin::net
