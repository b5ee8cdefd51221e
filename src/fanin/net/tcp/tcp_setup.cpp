// The part of TcpTransport that makes connections: addresses, listening, accepting, connecting, up
// to the point where both sides have said who they are.
#include <netinet/in.h>
#include <sys/epoll.h>

#include <algorithm>
#include <cerrno>

#include <fmt/format.h>

#include "fanin/net/connection_options.hpp"
#include "fanin/net/tcp/tcp.hpp"

namespace fanin::net {
Result<ConnectionOptions> TcpTransport::check(const Url& url, const ConnectionOptions& options) {
  if (url.scheme != "tcp") {
    return fail(ErrorKind::usage, fmt::format("{} is not an address of tcp://", url.text()));
  }
  for (const auto& [name, value] : url.options) {
    if (name != "congestion") {
      return fail(
          ErrorKind::usage,
          fmt::format("{}: option \"{}\" is not known; tcp:// has congestion", url.text(), name));
    }
    if (auto known = check_congestion(value); !known)
      return fail(known.error().kind, fmt::format("{}: {}", url.text(), known.error().text));
  }
  return checked_options(url, options);
}

const std::string& TcpTransport::congestion_of(const Url& url) const {
  const auto option = url.options.find("congestion");
  return option == url.options.end() ? options_.congestion : option->second;
}

// --- listening ---

Result<ListenerId> TcpTransport::listen(const Url& url, const ConnectionOptions& options) {
  const auto checked = check(url, options);
  if (!checked) return std::unexpected(checked.error());
  if (options.peers_must_identify) {
    if (auto reserved = unidentified_pages_.reserve(); !reserved)
      return std::unexpected(reserved.error());
  }
  const auto addresses = resolve(url, true);
  if (!addresses) return std::unexpected(addresses.error());
  Result<Descriptor> socket = bind_and_listen(url, *addresses);
  if (!socket) return std::unexpected(socket.error());
  set_stream_options(socket->get(), congestion_of(url)); // accepted sockets inherit them
  Url real = url;
  if (real.host.empty()) real.host = "127.0.0.1";
  real.port = local_address(socket->get()).port();
  return listeners_.add(*checked, std::move(real), std::move(*socket), epoll_.get());
}

Url TcpTransport::listening_url(ListenerId listener) const { return listeners_.url(listener); }

void TcpTransport::close_listener(ListenerId listener) {
  if (!listeners_.close(listener)) return;
  for (const ConnectionId id : unknown_to_owner(connections_, listener, undispatched()))
    close(id, true);
}

// One that was closed here and does not hang up is told nothing, and neither is its owner.
void TcpTransport::evict(Connection& unidentified) {
  if (unidentified.state.stage() == Stage::closing) {
    set_reset_on_close(unidentified.socket);
    erase(unidentified);
    return;
  }
  report(CloseReason::protocol_violation, unidentified, "did not identify itself, and others wait");
  end(unidentified, CloseReason::protocol_violation, true);
}

// This process may have had no processor for long: what a peer has sent in time is read before the
// peer is judged, once.
bool TcpTransport::excuse(Connection& connection) {
  if (connection.state.stage() == Stage::closing || !has_unread(connection.socket.get()) ||
      std::exchange(connection.excused, true))
    return false;
  connection.readable = true;
  if (!connection.starved.listed()) ready_.add(connection.ready);
  return true;
}

bool TcpTransport::accept_one(Listener& listener) {
  if (!unidentified_.admits(loop_.now())) { // it waits in the kernel's queue
    listeners_.pause(listener);
    return false;
  }
  if (unidentified_.full()) {
    Connection& oldest = *unidentified_.peer_to_evict(loop_.now());
    if (excuse(oldest)) {
      unidentified_.renew(oldest.unidentified, loop_.now());
      return true; // the next one may have sent nothing
    }
  }
  Address peer;
  Descriptor socket = accept_from(listener.socket.get(), peer);
  if (!socket) return listeners_.may_go_on(listener, errno);
  if (unidentified_.full()) evict(*unidentified_.peer_to_evict(loop_.now()));
  Connection& connection = make_connection(listener.options);
  connection.state.set_listener(listener.id);
  connection.socket = std::move(socket);
  connection.peer = peer;
  if (listener.options.peers_must_identify)
    connection.receiver.mark_unidentified(unidentified_pages_.filler());
  unidentified_.add(connection.unidentified, loop_.now());
  if (watch(connection)) {
    start_handshake(connection);
  } else {
    ++accounts_.accept_failures;
    end(connection, CloseReason::local, true);
  }
  return true;
}

// --- connecting ---

Result<ConnectionId> TcpTransport::connect(const Url& url, const ConnectionOptions& options) {
  const auto checked = check(url, options);
  if (!checked) return std::unexpected(checked.error());
  if (url.port == 0) {
    return fail(ErrorKind::usage,
                fmt::format("{}: a port is missing, as in tcp://host:7000", url.text()));
  }
  Connection& connection = make_connection(*checked);
  connection.target = url;
  connection.congestion = congestion_of(url);
  connection.connect_by = loop_.now() + options_.handshake_timeout;
  if (const auto found = loop_.resolver().ask(url.host, connection.question))
    take_addresses(connection, *found);
  return connection.id;
}

void TcpTransport::take_addresses(Connection& connection, const Resolver::Found& found) {
  if (!found) {
    const bool later = found.error().kind == ErrorKind::disconnected;
    const CloseReason reason = later ? CloseReason::connect_failed : CloseReason::unknown_host;
    report(reason, connection, found.error().text);
    return end(connection, reason, false);
  }
  connection.addresses = *found;
  for (Address& address : connection.addresses) {
    if (address.port() == 0) address.set_port(connection.target.port);
  }
  std::ranges::reverse(connection.addresses); // taken from the back
  connect_next(connection, EHOSTUNREACH);
}

// Tries the addresses of the host one after the other. Each has its share of the time that is left:
// one that swallows packets must not keep the next from being tried.
void TcpTransport::connect_next(Connection& connection, int last_error) {
  while (!connection.addresses.empty()) {
    const Address address = connection.addresses.back();
    connection.addresses.pop_back();
    connection.socket = Descriptor(
        ::socket(address.storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    if (!connection.socket) {
      last_error = errno;
      continue;
    }
    set_stream_options(connection.socket.get(), connection.congestion);
    const int result = ::connect(connection.socket.get(), address.get(), address.length);
    if (result != 0 && errno != EINPROGRESS) {
      last_error = errno;
      continue;
    }
    // Registered after connect(): before, epoll would report a socket that hung up.
    if (!watch(connection)) {
      last_error = errno;
      continue;
    }
    const auto shares = static_cast<std::int64_t>(connection.addresses.size()) + 1;
    connection.deadline.start(loop_, loop_.now() + (connection.connect_by - loop_.now()) / shares);
    if (result == 0) start_handshake(connection);
    return;
  }
  loop_.resolver().forget(connection.target.host); // it may have moved
  report(CloseReason::connect_failed, connection, error_text(last_error));
  end(connection, CloseReason::connect_failed, false);
}

void TcpTransport::connect_progress(Connection& connection) {
  int error = 0;
  socklen_t size = sizeof error;
  (void)getsockopt(connection.socket.get(), SOL_SOCKET, SO_ERROR, &error, &size);
  if (error != 0) {
    connect_next(connection, error);
  } else if (peer_address(connection.socket.get()).length > 0) {
    start_handshake(connection);
  }
}

void TcpTransport::start_handshake(Connection& connection) {
  connection.state.enter(Stage::handshake);
  connection.addresses = {};
  connection.congestion = {};
  const int socket = connection.socket.get();
  if (connection.state.ours()) {
    // Two ends of one socket: connecting to a port of this host on which nobody listens may, by bad
    // luck in the choice of the own port, reach itself.
    const Address local = local_address(socket);
    connection.peer = peer_address(socket);
    connection.deadline.start(loop_, connection.connect_by);
    if (local.port() == connection.peer.port() && local.host() == connection.peer.host()) {
      report(CloseReason::connect_failed, connection, error_text(ECONNREFUSED));
      end(connection, CloseReason::connect_failed, true);
      return;
    }
  }
  std::array<std::byte, tcp::preface_size> preface;
  tcp::encode_preface(preface, {.max_message = connection.options.max_message});
  // The buffer of a new socket has room for it.
  if (::send(socket, preface.data(), preface.size(), MSG_NOSIGNAL) !=
      static_cast<ssize_t>(preface.size())) {
    read_failed(connection, errno);
    return;
  }
  ready_.add(connection.ready);
}

} // namespace fanin::net
