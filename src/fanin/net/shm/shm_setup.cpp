// The part of ShmTransport that makes connections: names, listening, accepting, connecting, up to
// the point where both ends have mapped each other's outbox.
#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <new>
#include <utility>

#include <fmt/format.h>

#include "fanin/base/try.hpp"
#include "fanin/net/connection_options.hpp"
#include "fanin/net/shm/connection.hpp"

namespace fanin::net {
namespace {

std::string text_of(int error) { return std::strerror(error); }

struct Name {
  sockaddr_un address{};
  socklen_t length = 0;
  [[nodiscard]] const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&address); }
};

// Abstract: it exists as long as its socket does, and in no folder.
Result<Name> name_of(const Url& url) {
  const std::string text = fmt::format("fanin/shm/{}:{}", url.host, url.port);
  Name name;
  if (text.size() + 1 > sizeof name.address.sun_path)
    return fail(ErrorKind::usage, fmt::format("{}: the name is too long", url.text()));
  name.address.sun_family = AF_UNIX;
  std::memcpy(name.address.sun_path + 1, text.data(), text.size());
  name.length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + text.size());
  return name;
}

Descriptor make_socket() {
  return Descriptor(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
}

Result<> bind_to(const Descriptor& socket, const Url& url) {
  const auto name = FANIN_TRY(name_of(url));
  if (::bind(socket.get(), name.get(), name.length) == 0) return {};
  if (errno == EADDRINUSE) {
    return fail(ErrorKind::refused,
                fmt::format("{}: the port is in use; `ss -lxp` shows by whom. Choose another one, "
                            "or none for any that is free",
                            url.text()));
  }
  return fail_errno(ErrorKind::refused, fmt::format("{}: bind", url.text()), errno);
}

// Begins somewhere else in each process, and does not soon come back to a port that was used.
std::uint16_t next_port() {
  static std::uint32_t last = static_cast<std::uint32_t>(getpid()) * 64U;
  constexpr std::uint32_t first = 1024;
  last = (last + 1) % (65536 - first);
  return static_cast<std::uint16_t>(first + last);
}

bool is_eventfd(const Descriptor& descriptor) {
  const std::string path = fmt::format("/proc/self/fd/{}", descriptor.get());
  std::array<char, 64> target{};
  const ssize_t length = ::readlink(path.c_str(), target.data(), target.size());
  const int flags = fcntl(descriptor.get(), F_GETFL);
  return length > 0 && flags >= 0 && (flags & O_NONBLOCK) != 0 &&
         std::string_view(target.data(), static_cast<std::size_t>(length)) ==
             "anon_inode:[eventfd]";
}

} // namespace

namespace shm {

Result<std::unique_ptr<OwnOutbox>> OwnOutbox::make() {
  std::unique_ptr<OwnOutbox> made(new OwnOutbox);
  made->file = Descriptor(memfd_create("fanin-outbox", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!made->file || ftruncate(made->file.get(), sizeof(Outbox)) != 0)
    return fail_errno(ErrorKind::exhausted, "memory for a connection", errno);
  void* const address =
      mmap(nullptr, sizeof(Outbox), PROT_READ | PROT_WRITE, MAP_SHARED, made->file.get(), 0);
  if (address == MAP_FAILED)
    return fail_errno(ErrorKind::exhausted, "memory for a connection", errno);
  made->outbox_ = new (address) Outbox;
  (void)fcntl(made->file.get(), F_ADD_SEALS, F_SEAL_FUTURE_WRITE); // from kernel 5.1 on
  if (fcntl(made->file.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0)
    return fail_errno(ErrorKind::exhausted, "memory for a connection: seal", errno);
  return made;
}

OwnOutbox::~OwnOutbox() {
  if (outbox_ != nullptr) munmap(outbox_, sizeof(Outbox));
}

} // namespace shm

Result<> ShmTransport::check_address(const Url& url) const {
  return check_plain_address(url, "shm");
}

Result<ShmTransport::Connection*> ShmTransport::make_connection(const ConnectionOptions& checked) {
  auto outbox = FANIN_TRY(shm::OwnOutbox::make());
  Descriptor wake(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake) return fail_errno(ErrorKind::exhausted, "eventfd for a connection", errno);
  const auto [id, connection] =
      connections_.emplace(*this, checked, fillers_.of(*checked.receive_pool));
  connection.id = id;
  connection.own = std::move(outbox);
  connection.wake = std::move(wake);
  connection.deadline.start(loop_, loop_.now() + options_.handshake_timeout);
  return &connection;
}

// --- listening ---

Result<ListenerId> ShmTransport::listen(const Url& url, const ConnectionOptions& options) {
  const auto checked = FANIN_TRY(checked_options(*this, url, options));
  if (options.peers_must_identify) FANIN_TRY(unidentified_pages_.reserve());
  Descriptor socket = make_socket();
  if (!socket)
    return fail_errno(ErrorKind::exhausted, fmt::format("{}: socket", url.text()), errno);
  Url real = url;
  Result<> bound;
  for (int tries = 0; tries < 65536; ++tries) {
    if (url.port == 0) real.port = next_port();
    bound = bind_to(socket, real);
    if (bound || url.port != 0 || bound.error().kind != ErrorKind::refused) break;
  }
  if (!bound) return std::unexpected(bound.error());
  if (::listen(socket.get(), SOMAXCONN) != 0)
    return fail_errno(ErrorKind::refused, fmt::format("{}: listen", url.text()), errno);
  return listeners_.add(checked, std::move(real), std::move(socket), epoll_.get());
}

Url ShmTransport::listening_url(ListenerId listener) const { return listeners_.url(listener); }

void ShmTransport::close_listener(ListenerId listener) {
  if (!listeners_.close(listener)) return;
  for (const ConnectionId id :
       unknown_to_owner(connections_, &Connection::state, listener, undispatched()))
    close(id, true);
}

// One that was closed here is told nothing more, and neither is its owner.
void ShmTransport::evict(Connection& unidentified) {
  if (unidentified.state.stage() == Stage::closing) return abandon_closing(unidentified);
  report(CloseReason::evicted, unidentified, "did not identify itself, and others wait");
  signal_aborted(unidentified);
  end(unidentified, CloseReason::evicted);
}

// This process may have had no processor for long: what a peer has sent in time is read before the
// peer is judged, once.
bool ShmTransport::extend_if_unread(Connection& unidentified) {
  const bool silent = !unidentified.connected();
  read_packets(unidentified);
  if (!unidentified.state.is_open() || unidentified.deadline_extended) return false;
  const std::uint32_t written = unidentified.peer().written.load(std::memory_order_acquire);
  unidentified.deadline_extended = silent || written != unidentified.receiving.read;
  if (unidentified.deadline_extended) poll_eagerly(unidentified);
  return unidentified.deadline_extended;
}

bool ShmTransport::accept_one(Listener& listener) {
  if (!unidentified_.admits(loop_.now())) { // it waits in the kernel's queue
    listeners_.pause(listener);
    return false;
  }
  if (unidentified_.full()) {
    Connection& oldest = *unidentified_.peer_to_evict(loop_.now());
    const bool extended = extend_if_unread(oldest);
    if (extended && oldest.unidentified.unidentified())
      unidentified_.renew(oldest.unidentified, loop_.now());
    if (extended) return true; // the next one may have sent nothing
  }
  Descriptor socket(
      ::accept4(listener.socket.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  if (!socket) return listeners_.may_go_on(listener, errno);
  const Result<Connection*> made = make_connection(listener.options);
  if (!made) {
    listeners_.pause_after_failure(listener, made.error().text);
    return false;
  }
  if (unidentified_.full()) evict(*unidentified_.peer_to_evict(loop_.now()));
  Connection& connection = **made;
  connection.state.set_listener(listener.id);
  unidentified_.add(connection.unidentified, loop_.now());
  if (listener.options.peers_must_identify) connection.filler = &unidentified_pages_.filler();
  connection.socket = std::move(socket);
  start_handshake(connection);
  return true;
}

// --- connecting ---

Result<ConnectionId> ShmTransport::connect(const Url& url, const ConnectionOptions& options) {
  const auto checked = FANIN_TRY(checked_options(*this, url, options));
  FANIN_TRY(name_of(url));
  if (url.port == 0) {
    return fail(ErrorKind::usage,
                fmt::format("{}: a port is missing, as in shm://name:7000", url.text()));
  }
  auto made = FANIN_TRY(make_connection(checked));
  Connection& connection = *made;
  connection.url = url;
  connection.target = url.text();
  try_connect(connection);
  return connection.id;
}

void ShmTransport::try_again(Connection& connection) {
  if (connection.state.stage() == Stage::connecting) return try_connect(connection);
  connection.socket_full = false;
  poll_eagerly(connection);
  if (std::exchange(connection.receiving.lacks_memory, false)) read_packets(connection);
}

void ShmTransport::try_connect(Connection& connection) {
  const auto name = name_of(connection.url);
  connection.socket = make_socket();
  if (connection.socket && ::connect(connection.socket.get(), name->get(), name->length) == 0) {
    start_handshake(connection);
    return;
  }
  if (errno == EAGAIN) { // many connect at once
    connection.retry.start(loop_, loop_.now() + options_.retry_pause);
    return;
  }
  report(CloseReason::connect_failed, connection, text_of(errno));
  end(connection, CloseReason::connect_failed);
}

void ShmTransport::start_handshake(Connection& connection) {
  connection.state.enter(Stage::handshake);
  ucred peer{};
  socklen_t size = sizeof peer;
  const bool known =
      getsockopt(connection.socket.get(), SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0;
  if (!connection.state.ours()) connection.target = fmt::format("shm://(process {})", peer.pid);
  const bool ours = connection.state.ours();
  const auto give_up = [&](CloseReason reason, std::string_view why) {
    report(reason, connection, why);
    end(connection, reason);
  };
  // Names of sockets have no permissions: anybody on this host may connect, or listen there first.
  connection.other_user = !known || peer.uid != geteuid();
  if (connection.other_user && (!known || peer.uid != 0)) {
    return give_up(ours ? CloseReason::connect_failed : CloseReason::protocol_violation,
                   belongs_to_another_user);
  }
  const auto watch = [&](int descriptor, std::uint32_t events, std::uint64_t bit) {
    epoll_event event{.events = events | EPOLLET,
                      .data = {.u64 = static_cast<std::uint64_t>(connection.id) | bit}};
    return epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, descriptor, &event) == 0;
  };
  const int handed_over[] = {connection.own->file.get(), connection.wake.get()};
  const shm::Hello hello{.max_message = connection.options.max_message};
  if (!watch(connection.socket.get(), EPOLLIN | EPOLLOUT | EPOLLRDHUP, 0) ||
      !watch(connection.wake.get(), EPOLLIN, shm::wake_bit) ||
      !shm::send_packet(connection.socket.get(), shm::encode(hello), handed_over)) {
    return give_up(ours ? CloseReason::connect_failed : CloseReason::peer_closed, text_of(errno));
  }
  connection.own->file = {};
}

// --- packets ---

void ShmTransport::read_packets(Connection& connection) {
  while (connection.state.stage() != Stage::connecting &&
         connection.state.stage() != Stage::ended) {
    auto packet = next_packet(connection);
    if (!packet && packet.error().kind == ErrorKind::not_found) return;
    // It went with packets of ours unread; what it had sent before is still there.
    if (!packet && packet.error().kind == ErrorKind::disconnected) continue;
    if (!packet && packet.error().kind == ErrorKind::exhausted)
      return wait_for_memory(connection, packet.error().text);
    if (packet && packet->size == 0 && shm::has_hung_up(connection.socket.get())) return;
    const Result<> taken =
        packet ? take_packet(connection, *packet) : std::unexpected(packet.error());
    if (taken) continue;
    if (packet && taken.error().kind == ErrorKind::exhausted) {
      connection.receiving.packet = std::move(*packet);
      return wait_for_memory(connection, taken.error().text);
    }
    (void)violation(connection, taken.error().text);
    return;
  }
}

Result<shm::ReceivedPacket> ShmTransport::next_packet(Connection& connection) {
  if (!connection.receiving.packet) return shm::receive_packet(connection.socket.get());
  shm::ReceivedPacket packet = std::move(*connection.receiving.packet);
  connection.receiving.packet.reset();
  return packet;
}

// The peer has done nothing wrong: this process lacks something, which may come back.
void ShmTransport::wait_for_memory(Connection& connection, std::string_view why) {
  connection.receiving.lacks_memory = true;
  connection.retry.start(loop_, loop_.now() + options_.retry_pause);
  if (!std::exchange(connection.receiving.lack_reported, true))
    report(CloseReason::local, connection, why);
}

Result<> ShmTransport::take_packet(Connection& connection, shm::ReceivedPacket& packet) {
  const auto decoded = FANIN_TRY(shm::decode(std::span(packet.bytes).first(packet.size)));
  if (const auto* hello = std::get_if<shm::Hello>(&decoded))
    return take_hello(connection, *hello, packet);
  if (!connection.connected()) return fail(ErrorKind::malformed, "sent memory before its hello");
  if (!packet.descriptors[0] || packet.descriptors[1])
    return fail(ErrorKind::malformed, "announced memory without sending its descriptor");
  return connection.lent->add(packet.descriptors[0], std::get<shm::Memory>(decoded).size);
}

Result<> ShmTransport::take_hello(Connection& connection, const shm::Hello& hello,
                                  shm::ReceivedPacket& packet) {
  if (connection.state.stage() != Stage::handshake)
    return fail(ErrorKind::malformed, "sent hello twice");
  if (hello.version != shm::protocol_version) {
    report(CloseReason::version_mismatch, connection,
           other_version(hello.version, shm::protocol_version));
    end(connection, CloseReason::version_mismatch);
    return {};
  }
  if (hello.outbox_size != sizeof(shm::Outbox) || !packet.descriptors[1] ||
      !is_eventfd(packet.descriptors[1]))
    return fail(ErrorKind::malformed, "sent hello without its descriptors");
  connection.peer_outbox =
      FANIN_TRY(shm::Mapping::make(packet.descriptors[0], sizeof(shm::Outbox)));
  connection.peer_wake = std::move(packet.descriptors[1]);
  connection.peer_max_message = hello.max_message;
  connection.state.enter(Stage::open);
  if (!connection.options.peers_must_identify) connection.unidentified.mark_identified();
  connection.deadline.cancel();
  return {};
}

} // namespace fanin::net
