// The part of TcpTransport that makes connections: addresses, listening, accepting, connecting, up
// to the point where both sides have said who they are.
#include <netinet/in.h>
#include <sys/epoll.h>

#include <algorithm>
#include <cerrno>

#include <fmt/format.h>

#include "fanin/base/units.hpp"
#include "fanin/net/tcp/tcp.hpp"

namespace fanin::net {
namespace {

using tcp::error_text;
using tcp::set_reset_on_close;

constexpr int tcp_accepts_per_poll = 64;

// Why accept() failed for one connection, which is gone: the next may be good.
bool of_one_connection(int error) {
  switch (error) {
  case EINTR:
  case ECONNABORTED:
  case EPROTO: // and these are passed on from the network (accept(2))
  case ENETDOWN:
  case ENOPROTOOPT:
  case EHOSTDOWN:
  case ENONET:
  case EHOSTUNREACH:
  case EOPNOTSUPP:
  case ENETUNREACH: return true;
  default: return false;
  }
}

} // namespace

TcpTransport::Listener::Listener(TcpTransport& owner, const ConnectionOptions& given, Url real,
                                 Descriptor bound)
    : options(given),
      url(std::move(real)),
      socket(std::move(bound)),
      retry([this, &owner] { owner.accepting_.push_back(id); }) {}

Result<> TcpTransport::check(const Url& url, const ConnectionOptions& options) const {
  if (url.scheme != "tcp") {
    return fail(ErrorKind::usage, fmt::format("{} is not an address of tcp://", url.text()));
  }
  for (const auto& [name, value] : url.options) {
    if (name != "congestion") {
      return fail(
          ErrorKind::usage,
          fmt::format("{}: option \"{}\" is not known; tcp:// has congestion", url.text(), name));
    }
    if (auto known = tcp::check_congestion(value); !known)
      return fail(known.error().kind, fmt::format("{}: {}", url.text(), known.error().text));
  }
  if (options.receive_pool == nullptr) return fail(ErrorKind::usage, "no receive pool");
  const std::uint32_t page = options.receive_pool->page_size();
  if (options.max_message > page / 2) {
    return fail(ErrorKind::usage,
                fmt::format("{}: messages of up to {} need pages of twice that size; those of the "
                            "receive pool have {}",
                            url.text(), format_size(options.max_message), format_size(page)));
  }
  return {};
}

const std::string& TcpTransport::congestion_of(const Url& url) const {
  const auto option = url.options.find("congestion");
  return option == url.options.end() ? options_.congestion : option->second;
}

// --- listening ---

Result<ListenerId> TcpTransport::listen(const Url& url, const ConnectionOptions& options) {
  if (auto checked = check(url, options); !checked) return std::unexpected(checked.error());
  if (options.strangers) {
    if (auto reserved = unidentified_.reserve(); !reserved)
      return std::unexpected(reserved.error());
  }
  const auto addresses = resolve(url, true);
  if (!addresses) return std::unexpected(addresses.error());
  Result<Descriptor> socket = tcp::bind_and_listen(url, *addresses);
  if (!socket) return std::unexpected(socket.error());
  tcp::set_stream_options(socket->get(), congestion_of(url)); // accepted sockets inherit them
  Url real = url;
  if (real.host.empty()) real.host = "127.0.0.1";
  real.port = tcp::local_address(socket->get()).port();
  const int descriptor = socket->get();
  const auto [id, listener] =
      listeners_.emplace(*this, options, std::move(real), std::move(*socket));
  listener.id = id;
  epoll_event event{.events = EPOLLIN | EPOLLET,
                    .data = {.u64 = static_cast<std::uint64_t>(id) | listener_bit}};
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, descriptor, &event) != 0) {
    const int error = errno;
    listeners_.erase(id);
    return fail_errno(ErrorKind::exhausted, fmt::format("{}: epoll", url.text()), error);
  }
  return id;
}

Url TcpTransport::listening_url(ListenerId listener) const {
  const Listener* const found = listeners_.find(listener);
  return found == nullptr ? Url{} : found->url;
}

void TcpTransport::close_listener(ListenerId listener) {
  if (listeners_.find(listener) == nullptr) return;
  listeners_.erase(listener);
  std::vector<ConnectionId> unseen; // nobody has been told of them
  connections_.for_each([&](ConnectionId id, const Connection& connection) {
    if (connection.listener == listener && connection.stage == Stage::handshake)
      unseen.push_back(id);
  });
  for (const Event& event : undispatched()) {
    if (event.handler == nullptr || event.kind != EventKind::accepted) continue;
    const Connection* const connection = connections_.find(event.connection);
    if (connection != nullptr && connection->listener == listener)
      unseen.push_back(event.connection);
  }
  for (const ConnectionId id : unseen) close(id, true);
}

void TcpTransport::accept_all() {
  std::vector<ListenerId> listeners;
  listeners.swap(accepting_);
  for (const ListenerId id : listeners) {
    Listener* const listener = listeners_.find(id);
    if (listener == nullptr) continue;
    int left = tcp_accepts_per_poll;
    while (left > 0 && accept_one(*listener)) --left;
    if (left == 0) accepting_.push_back(id);
  }
}

// The one that has to go if another is let in; null: none has to.
TcpTransport::Connection* TcpTransport::stranger_in_the_way() const {
  if (strangers_ < options_.strangers_max) return nullptr;
  Connection* oldest = nullptr;
  connections_.for_each([&](ConnectionId, Connection& connection) {
    if (!connection.stranger) return;
    if (oldest == nullptr || connection.accepted_at < oldest->accepted_at) oldest = &connection;
  });
  return oldest;
}

// One that was closed here and does not hang up is told nothing, and neither is its owner.
void TcpTransport::send_away(Connection& stranger) {
  if (stranger.stage == Stage::closing) {
    set_reset_on_close(stranger.socket);
    erase(stranger);
    return;
  }
  report(CloseReason::protocol_violation, stranger, "did not identify itself, and others wait");
  end(stranger, CloseReason::protocol_violation, true);
}

bool TcpTransport::accept_one(Listener& listener) {
  // Not at once: those of a whole system that starts together would push each other out.
  Connection* const oldest = stranger_in_the_way();
  if (oldest != nullptr && loop_.now() - oldest->accepted_at < options_.stranger_patience) {
    listener.retry.start(loop_, loop_.now() + options_.accept_pause);
    return false;
  }
  Address peer;
  Descriptor socket = tcp::accept_from(listener.socket.get(), peer);
  if (!socket) {
    const int error = errno;
    if (error == EAGAIN) return false;
    if (of_one_connection(error)) return true;
    // It stays in the kernel's queue, and asking again at once would spin.
    ++counters_.accept_failures;
    listener.retry.start(loop_, loop_.now() + options_.accept_pause);
    if (options_.report) {
      options_.report(CloseReason::local,
                      fmt::format("{}: accept: {}; raise the limit of open files "
                                  "(ulimit -n)",
                                  listener.url.text(), error_text(error)));
    }
    return false;
  }
  if (oldest != nullptr) send_away(*oldest);
  Connection& connection = make_connection(listener.options);
  connection.listener = listener.id;
  connection.socket = std::move(socket);
  connection.peer = peer;
  connection.accepted_at = loop_.now();
  connection.stranger = true;
  if (listener.options.strangers) connection.receiver.distrust(unidentified_.filler());
  ++strangers_;
  if (watch(connection)) {
    start_handshake(connection);
  } else {
    ++counters_.accept_failures;
    end(connection, CloseReason::local, true);
  }
  return true;
}

// --- connecting ---

Result<ConnectionId> TcpTransport::connect(const Url& url, const ConnectionOptions& options) {
  if (auto checked = check(url, options); !checked) return std::unexpected(checked.error());
  if (url.port == 0) {
    return fail(ErrorKind::usage,
                fmt::format("{}: a port is missing, as in tcp://host:7000", url.text()));
  }
  Connection& connection = make_connection(options);
  connection.stage = Stage::connecting;
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
    tcp::set_stream_options(connection.socket.get(), connection.congestion);
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
  } else if (tcp::peer_address(connection.socket.get()).length > 0) {
    start_handshake(connection);
  }
}

void TcpTransport::start_handshake(Connection& connection) {
  connection.stage = Stage::handshake;
  connection.addresses = {};
  connection.congestion = {};
  const int socket = connection.socket.get();
  if (connection.listener == ListenerId::none) {
    // Two ends of one socket: connecting to a port of this host on which nobody listens may, by bad
    // luck in the choice of the own port, reach itself.
    const Address local = tcp::local_address(socket);
    connection.peer = tcp::peer_address(socket);
    connection.deadline.start(loop_, connection.connect_by);
    if (local.port() == connection.peer.port() && local.host() == connection.peer.host()) {
      report(CloseReason::connect_failed, connection, error_text(ECONNREFUSED));
      end(connection, CloseReason::connect_failed, true);
      return;
    }
  }
  std::array<std::byte, tcp::preface_size> preface;
  tcp::encode_preface(preface, {.max_message = connection.max_message});
  // The buffer of a new socket has room for it.
  if (::send(socket, preface.data(), preface.size(), MSG_NOSIGNAL) !=
      static_cast<ssize_t>(preface.size())) {
    read_failed(connection, errno);
    return;
  }
  list(connection);
}

} // namespace fanin::net
