// The part of TcpTransport that makes connections: addresses, listening, accepting, connecting, up
// to the point where both sides have said who they are.
#include <sys/epoll.h>

#include <cerrno>
#include <cstring>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "fanin/base/number.hpp"
#include "fanin/base/try.hpp"
#include "fanin/net/connection_options.hpp"
#include "fanin/net/tcp/tcp.hpp"

namespace fanin::net {

namespace {

std::optional<int> dscp_number(std::string_view text) {
  const auto number = parse_number<int>(text);
  return number && *number >= 0 && *number <= 63 ? number : std::nullopt;
}

} // namespace

Result<> TcpTransport::check_address(const Url& url) const {
  FANIN_TRY(check_scheme(url, "tcp"));
  for (const auto& [name, value] : url.options) {
    if (name == "dscp") {
      if (dscp_number(value)) continue;
      return fail(ErrorKind::usage,
                  fmt::format("{}: dscp is a number from 0 to 63, as 46", url.text()));
    }
    if (name != "congestion") {
      return fail(ErrorKind::usage,
                  fmt::format("{}: option \"{}\" is not known; tcp:// has congestion and dscp",
                              url.text(), name));
    }
    if (auto known = check_congestion(value); !known)
      return fail(known.error().kind, fmt::format("{}: {}", url.text(), known.error().text));
  }
  return {};
}

StreamOptions TcpTransport::stream_options(const Url& url) const {
  const auto congestion = url.options.find("congestion");
  const auto dscp = url.options.find("dscp");
  return {congestion == url.options.end() ? options_.congestion : congestion->second,
          dscp == url.options.end() ? 0 : dscp_number(dscp->second).value_or(0)};
}

// --- listening ---

Result<ListenerId> TcpTransport::listen(const Url& url, const ConnectionOptions& options) {
  const auto checked = FANIN_TRY(checked_options(*this, url, options));
  if (options.peers_must_identify) FANIN_TRY(unidentified_pages_.reserve());
  const auto addresses = FANIN_TRY(resolve(url, true));
  auto socket = FANIN_TRY(bind_and_listen(url, addresses));
  set_stream_options(socket.get(), stream_options(url)); // accepted sockets inherit them
  Url real = url;
  if (real.host.empty()) real.host = "127.0.0.1";
  real.port = local_address(socket.get()).port();
  return listeners_.add(checked, std::move(real), std::move(socket), epoll_.get());
}

Url TcpTransport::listening_url(ListenerId listener) const { return listeners_.url(listener); }

void TcpTransport::close_listener(ListenerId listener) {
  if (!listeners_.close(listener)) return;
  for (const ConnectionId id :
       unknown_to_owner(connections_, &Connection::state, listener, undispatched()))
    close(id, true);
}

// One that was closed here and does not hang up is told nothing, and neither is its owner.
void TcpTransport::evict(Connection& unidentified) {
  if (unidentified.state.stage() == Stage::closing) {
    set_reset_on_close(unidentified.socket);
    erase(unidentified);
    return;
  }
  report(CloseReason::evicted, unidentified, "did not identify itself, and others wait");
  end(unidentified, CloseReason::evicted, true);
}

// This process may have had no processor for long: what a peer has sent in time is read before the
// peer is judged, once.
bool TcpTransport::extend_if_unread(Connection& connection) {
  if (connection.state.stage() == Stage::closing || !has_unread(connection.socket.get()) ||
      std::exchange(connection.deadline_extended, true))
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
    if (extend_if_unread(oldest)) {
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
  if (listener.options.urgent) set_urgent(connection.socket);
  if (listener.options.peers_must_identify)
    connection.receiver.mark_unidentified(unidentified_pages_.filler());
  unidentified_.add(connection.unidentified, loop_.now());
  if (watch(connection.id, connection.socket.get())) {
    start_handshake(connection);
  } else {
    ++accounts_.accept_failures;
    report(CloseReason::local, connection, fmt::format("epoll: {}", std::strerror(errno)));
    end(connection, CloseReason::local, true);
  }
  return true;
}

// --- connecting ---

Result<ConnectionId> TcpTransport::connect(const Url& url, const ConnectionOptions& options) {
  const auto checked = FANIN_TRY(checked_options(*this, url, options));
  if (url.port == 0) {
    return fail(ErrorKind::usage,
                fmt::format("{}: a port is missing, as in tcp://host:7000", url.text()));
  }
  Connection& connection = make_connection(checked);
  connection.target = url;
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
  std::vector<Address> addresses = *found;
  for (Address& address : addresses) {
    if (address.port() == 0) address.set_port(connection.target.port);
  }
  connection.attempts =
      ConnectAttempts(addresses, connection.deadline.deadline(), stream_options(connection.target));
  connect_next(connection);
}

void TcpTransport::connect_next(Connection& connection) {
  connection.socket =
      connection.attempts.next([&](int socket) { return watch(connection.id, socket); });
  if (connection.socket) {
    if (connection.options.urgent) set_urgent(connection.socket);
    connection.deadline.start(loop_, connection.attempts.share_ends(loop_.now()));
    return connect_progress(connection);
  }
  loop_.resolver().forget(connection.target.host); // it may have moved
  report(CloseReason::connect_failed, connection, error_text(connection.attempts.error()));
  end(connection, CloseReason::connect_failed, false);
}

void TcpTransport::connect_progress(Connection& connection) {
  if (const int error = connect_error(connection.socket.get()); error != 0) {
    connection.attempts.failed(error);
    connect_next(connection);
  } else if (peer_address(connection.socket.get()).length > 0) {
    start_handshake(connection);
  }
}

void TcpTransport::start_handshake(Connection& connection) {
  connection.state.enter(Stage::handshake);
  const int socket = connection.socket.get();
  if (connection.state.ours()) {
    connection.peer = peer_address(socket);
    connection.deadline.start(loop_, std::exchange(connection.attempts, {}).until());
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
