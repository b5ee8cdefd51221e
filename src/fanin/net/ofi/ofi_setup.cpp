// The part of OfiTransport that makes connections: listening, connecting, the events of endpoints,
// up to the point where both ends have introduced themselves.
#include <sys/epoll.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include <fmt/format.h>

#include "fanin/base/units.hpp"
#include "fanin/net/ofi/connection.hpp"
#include "fanin/net/posted/pages.hpp"

namespace fanin::net {

using posted::Hello;

namespace {

constexpr int events_per_poll = 256;
constexpr std::size_t undecided_most = 128; // strangers of a listener
constexpr std::size_t private_data_most = 256;

void* context_of(ListenerId id) { return reinterpret_cast<void*>(static_cast<std::uintptr_t>(id)); }

bool is_taken(long error) { return error == -FI_EADDRINUSE || error == -FI_EBUSY; }

} // namespace

Result<OfiTransport::Terms> OfiTransport::check(const Url& url,
                                                const ConnectionOptions& options) const {
  if (url.scheme != "ofi+" + provider_) {
    return fail(ErrorKind::usage,
                fmt::format("{} is not an address of ofi+{}://", url.text(), provider_));
  }
  for (const auto& [name, value] : url.options) {
    if (name == posted::pages_option) continue;
    return fail(ErrorKind::usage, fmt::format("{}: option \"{}\" is not known; {}:// has "
                                              "posted=N, the pages of the receive pool that a "
                                              "connection keeps posted",
                                              url.text(), name, url.scheme));
  }
  const auto pages = posted::pages_of(url);
  if (!pages) return std::unexpected(pages.error());
  if (options.receive_pool == nullptr) return fail(ErrorKind::usage, "no receive pool");
  const std::uint32_t page = options.receive_pool->page_size();
  if (options.max_message > page / 2) {
    return fail(ErrorKind::usage,
                fmt::format("{}: messages of up to {} need pages of twice that, and those of the "
                            "receive pool have {}",
                            url.text(), format_size(options.max_message), format_size(page)));
  }
  return Terms{options.max_message == 0 ? page / 2 : options.max_message, *pages};
}

Result<> OfiTransport::watch(int descriptor) const {
  epoll_event event{.events = EPOLLIN, .data = {}};
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, descriptor, &event) == 0) return {};
  return fail_errno(ErrorKind::exhausted, "epoll", errno);
}

Result<ofi::Fabric*> OfiTransport::fabric_of(const fi_info& info) {
  for (const auto& known : fabrics_) {
    if (known->name == info.fabric_attr->name) return known.get();
  }
  auto made = ofi::Fabric::open(info);
  if (!made) return std::unexpected(made.error());
  if (auto watched = watch((*made)->descriptor); !watched)
    return std::unexpected(watched.error());
  return fabrics_.emplace_back(std::move(*made)).get();
}

Result<ofi::Domain*> OfiTransport::domain_of(fi_info& info) {
  const auto fabric = fabric_of(info);
  if (!fabric) return std::unexpected(fabric.error());
  for (const auto& known : domains_) {
    if (known->is_of(**fabric, info)) return known.get();
  }
  auto made = ofi::Domain::open(**fabric, info);
  if (!made) return std::unexpected(made.error());
  return domains_.emplace_back(std::move(*made)).get();
}

// With an endpoint, and nothing posted yet.
Result<OfiTransport::Connection*> OfiTransport::make_connection(const ConnectionOptions& options,
                                                                const Terms& terms, fi_info& info) {
  const auto domain = domain_of(info);
  if (!domain) return std::unexpected(domain.error());
  const std::uint32_t receives =
      std::min<std::uint32_t>(ofi::receives_most, static_cast<std::uint32_t>(info.rx_attr->size));
  bool is_new = false;
  const auto completions = (*domain)->completions(ofi::sends_most + receives, is_new);
  if (!completions) return std::unexpected(completions.error());
  if (is_new) {
    if (auto watched = watch((*completions)->descriptor); !watched)
      return std::unexpected(watched.error());
  }
  void* description = nullptr;
  if (const memory::Arena* const arena = options.receive_pool->arena(); arena != nullptr) {
    const auto known = (*domain)->description(*arena);
    if (!known) return std::unexpected(known.error());
    description = *known;
  }
  const auto [id, connection] = connections_.emplace(*this, options, terms, receives,
                                                     fillers_.of(*options.receive_pool));
  connection.id = id;
  connection.domain = *domain;
  connection.completions = *completions;
  connection.receive_description = description;
  connection.operations = ofi::sends_most + receives;
  connection.completions->room -= connection.operations;
  connection.inject_most = std::min(info.tx_attr->inject_size, ofi::inject_room);
  connection.pieces_most = info.tx_attr->iov_limit;
  fid_ep* endpoint = nullptr;
  long error = fi_endpoint((*domain)->get(), &info, &endpoint, &connection);
  connection.endpoint.reset(error == 0 ? endpoint : nullptr);
  if (error == 0) error = fi_ep_bind(endpoint, &(*domain)->fabric().events->fid, 0);
  if (error == 0)
    error = fi_ep_bind(endpoint, &(*completions)->queue->fid, FI_TRANSMIT | FI_RECV);
  if (error == 0) error = fi_enable(endpoint);
  if (error != 0) {
    connection.completions->room += connection.operations;
    connections_.erase(id);
    return fail(ErrorKind::exhausted,
                fmt::format("no endpoint of the provider {}: {}; `ulimit -n` (open files) and "
                            "`ulimit -l` (locked memory) may be too low",
                            provider_, ofi::error_text(error)));
  }
  connection.deadline.start(loop_, loop_.now() + options_.handshake_timeout);
  return &connection;
}

// As soon as one receive can be posted, the peer may be told of it.
void OfiTransport::start(Connection& connection) {
  std::uint32_t posted = connection.receives.replenish(
      [&](std::uint32_t slot) { post_receive(connection, slot); });
  if (posted == 0) {
    if (!connection.poor) poor_.push_back(connection.id);
    connection.poor = true;
    return;
  }
  connection.stage = Stage::handshake;
  ++setting_up_;
  const auto hello = posted::encode(
      Hello{.max_message = connection.max_message, .credits = connection.credits.start(posted)});
  const long error = connection.ours()
                         ? fi_connect(connection.endpoint.get(), connection.info->dest_addr,
                                      hello.data(), hello.size())
                         : fi_accept(connection.endpoint.get(), hello.data(), hello.size());
  connection.info.reset();
  if (error == 0) return;
  refuse(connection.ours() ? CloseReason::connect_failed : CloseReason::peer_closed, connection,
         ofi::error_text(error));
}

void OfiTransport::refuse(CloseReason reason, Connection& connection, std::string_view text) {
  report(reason, connection, text);
  end(connection, reason);
}

// --- listening and connecting ---

Result<ListenerId> OfiTransport::listen(const Url& url, const ConnectionOptions& options) {
  const auto terms = check(url, options);
  if (!terms) return std::unexpected(terms.error());
  auto info = ofi::find_endpoint(provider_, url, true);
  if (!info) return std::unexpected(info.error());
  const auto fabric = fabric_of(**info);
  if (!fabric) return std::unexpected(fabric.error());
  const auto [id, listener] = listeners_.emplace();
  fid_pep* endpoint = nullptr;
  long error = fi_passive_ep((*fabric)->fabric.get(), info->get(), &endpoint, context_of(id));
  listener.endpoint.reset(error == 0 ? endpoint : nullptr);
  if (error == 0) error = fi_pep_bind(endpoint, &(*fabric)->events->fid, 0);
  if (error == 0) error = fi_listen(endpoint);
  std::array<std::byte, 128> address{};
  std::size_t size = address.size();
  if (error == 0) error = fi_getname(&endpoint->fid, address.data(), &size);
  if (error != 0) {
    listeners_.erase(id);
    return fail(ErrorKind::refused,
                fmt::format("{}: {}{}", url.text(), ofi::error_text(error),
                            is_taken(error) ? "; choose another port, or none for any that is free"
                                            : ""));
  }
  listener.id = id;
  listener.options = options;
  listener.terms = *terms;
  listener.url = url;
  ofi::put_address(listener.url, address.data(), size);
  look_ = true;
  return id;
}

Url OfiTransport::listening_url(ListenerId listener) const {
  const Listener* const found = listeners_.find(listener);
  return found == nullptr ? Url{} : found->url;
}

void OfiTransport::close_listener(ListenerId listener) {
  if (listeners_.find(listener) == nullptr) return;
  listeners_.erase(listener);
  std::vector<ConnectionId> unseen; // nobody has been told of them
  connections_.for_each([&](ConnectionId id, const Connection& connection) {
    if (connection.listener == listener && !connection.handed_out) unseen.push_back(id);
  });
  for (const Event& event : undispatched()) {
    if (event.handler == nullptr || event.kind != EventKind::accepted) continue;
    const Connection* const connection = connections_.find(event.connection);
    if (connection != nullptr && connection->listener == listener)
      unseen.push_back(event.connection);
  }
  for (const ConnectionId id : unseen) close(id, true);
}

Result<ConnectionId> OfiTransport::connect(const Url& url, const ConnectionOptions& options) {
  const auto terms = check(url, options);
  if (!terms) return std::unexpected(terms.error());
  auto info = ofi::find_endpoint(provider_, url, false);
  if (!info) return std::unexpected(info.error());
  const auto made = make_connection(options, *terms, **info);
  if (!made) {
    return fail(made.error().kind, fmt::format("{}: {}", url.text(), made.error().text));
  }
  Connection& connection = **made;
  connection.target = url.text();
  connection.info = std::move(*info);
  start(connection);
  return connection.id;
}

// --- the events of endpoints ---

void OfiTransport::read_events() {
  for (const auto& fabric : fabrics_) {
    for (int left = events_per_poll; left > 0 && read_event(*fabric); --left) {
    }
  }
}

bool OfiTransport::read_event(ofi::Fabric& fabric) {
  alignas(fi_eq_cm_entry) std::array<std::byte, sizeof(fi_eq_cm_entry) + private_data_most> room;
  std::uint32_t kind = 0;
  const ssize_t got = fi_eq_read(fabric.events.get(), &kind, room.data(), room.size(), 0);
  if (got == -FI_EAVAIL) {
    take_error(fabric);
    return true;
  }
  if (got < static_cast<ssize_t>(sizeof(fi_eq_cm_entry))) return false;
  auto& entry = *reinterpret_cast<fi_eq_cm_entry*>(room.data());
  const auto size = static_cast<std::size_t>(got) - sizeof entry;
  if (kind == FI_CONNREQ) {
    take_request(entry, size);
    return true;
  }
  auto& connection = *static_cast<Connection*>(entry.fid->context);
  if (connection.stage == Stage::buried) return true;
  if (kind == FI_CONNECTED) {
    take_connected(connection, std::span(room).subspan(sizeof entry, size));
  } else if (kind == FI_SHUTDOWN) {
    cut(connection, CloseReason::peer_died);
  }
  return true;
}

// A connection that could not be made, or a refusal with the peer's hello.
void OfiTransport::take_error(ofi::Fabric& fabric) {
  std::array<std::byte, private_data_most> data{};
  fi_eq_err_entry error{};
  error.err_data = data.data();
  error.err_data_size = data.size();
  if (fi_eq_readerr(fabric.events.get(), &error, 0) < 0) return;
  if (error.fid == nullptr || error.fid->fclass != FI_CLASS_EP) return;
  auto& connection = *static_cast<Connection*>(error.fid->context);
  if (connection.stage != Stage::handshake) {
    if (connection.stage != Stage::buried) cut(connection, CloseReason::peer_died);
    return;
  }
  const std::size_t size = error.err_data == nullptr ? 0 : error.err_data_size;
  const auto hello = posted::decode_hello(std::span(data).first(std::min(size, data.size())));
  if (hello && hello->version != posted::protocol_version) {
    refuse(CloseReason::version_mismatch, connection,
           fmt::format("speaks version {} of the protocol, this process version {}: use the same "
                       "release in all processes",
                       hello->version, posted::protocol_version));
    return;
  }
  refuse(connection.ours() ? CloseReason::connect_failed : CloseReason::peer_closed, connection,
         ofi::error_text(error.err));
}

void OfiTransport::take_request(fi_eq_cm_entry& entry, std::size_t size) {
  const ofi::Info info(entry.info);
  const auto id = static_cast<ListenerId>(reinterpret_cast<std::uintptr_t>(entry.fid->context));
  Listener* const listener = listeners_.find(id);
  if (listener == nullptr) return;
  Url peer{.scheme = "ofi+" + provider_, .host = "", .port = 0, .options = {}};
  if (info->dest_addr != nullptr) ofi::put_address(peer, info->dest_addr, info->dest_addrlen);
  const auto reject = [&](CloseReason reason, std::string_view why) {
    const auto answer = posted::encode(Hello{});
    (void)fi_reject(listener->endpoint.get(), info->handle, answer.data(), answer.size());
    ++counters_.rejected;
    ++counters_.closed[static_cast<std::size_t>(reason)];
    if (options_.report) options_.report(reason, fmt::format("{}: {}", peer.text(), why));
  };
  const auto hello =
      posted::decode_hello({reinterpret_cast<const std::byte*>(entry.data), size});
  if (!hello) return reject(CloseReason::protocol_violation, hello.error().text);
  if (hello->version != posted::protocol_version) {
    return reject(CloseReason::version_mismatch,
                  fmt::format("speaks version {} of the protocol, this process version {}: use the "
                              "same release in all processes",
                              hello->version, posted::protocol_version));
  }
  std::size_t undecided = 0;
  if (listener->options.strangers) {
    connections_.for_each([&](ConnectionId, const Connection& known) {
      if (known.listener == id && !known.trusted) ++undecided;
    });
  }
  if (undecided >= undecided_most)
    return reject(CloseReason::local, "too many have connected without saying who they are");
  const auto made = make_connection(listener->options, listener->terms, *info);
  if (!made) return reject(CloseReason::local, made.error().text);
  Connection& connection = **made;
  connection.listener = id;
  connection.trusted = !listener->options.strangers;
  connection.target = peer.text();
  connection.peer_max_message = hello->max_message;
  connection.credits.take_hello(*hello);
  start(connection);
}

void OfiTransport::take_connected(Connection& connection, std::span<const std::byte> data) {
  if (connection.stage != Stage::handshake) return;
  if (connection.ours()) {
    const auto hello = posted::decode_hello(data);
    if (!hello) return refuse(CloseReason::protocol_violation, connection, hello.error().text);
    if (hello->version != posted::protocol_version)
      return refuse(CloseReason::version_mismatch, connection, "speaks another version");
    connection.peer_max_message = hello->max_message;
    connection.credits.take_hello(*hello);
  }
  --setting_up_;
  connection.stage = Stage::open;
  connection.deadline.cancel();
  make_ready(connection);
}

} // namespace fanin::net
