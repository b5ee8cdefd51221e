// The part of RdmaTransport that makes connections: listening, connecting, the events of endpoints,
// up to the point where both ends have introduced themselves.
#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "fanin/base/try.hpp"
#include "fanin/net/connection_options.hpp"
#include "fanin/net/rdma/connection.hpp"

namespace fanin::net {

using rdma::Hello;
using rdma::ProviderEvent;
using rdma::SharedReceives;

namespace {

constexpr int completions_per_poll = 256;

// Half of what a connection with receives of its own has posted.
std::uint32_t shared_window(const rdma::Connection& connection) {
  const std::uint32_t pages = connection.receiving.pages;
  const rdma::SlotLayout own(*connection.options.receive_pool, connection.options.max_message,
                             rdma::receives_most / pages);
  return std::max(2U, pages * own.per_page() / 2);
}

// Of a connection whose host's addresses are being looked up.
class NamelessEndpoint final : public rdma::Endpoint {
public:
  [[nodiscard]] bool ready() const override { return false; }
  [[nodiscard]] Result<Limits> open(const memory::PagePool&) override { return none(); }
  [[nodiscard]] Result<> start(const rdma::HelloBytes&) override { return none(); }
  void reject(const rdma::HelloBytes&) override {}
  [[nodiscard]] Result<> post_receives(std::span<const rdma::Receive>, std::uint32_t) override {
    return none();
  }
  [[nodiscard]] Result<std::size_t> post_sends(std::span<const rdma::Send>) override {
    return none();
  }
  [[nodiscard]] Result<> reach(const memory::Arena&) override { return none(); }
  void close() override {}

private:
  static std::unexpected<Error> none() {
    return fail(ErrorKind::internal, "it has no address yet");
  }
};

} // namespace

Result<> RdmaTransport::check_address(const Url& url) const {
  FANIN_TRY(check_scheme(url, provider_->scheme()));
  FANIN_TRY(rdma::receive_options(url));
  return provider_->check(url);
}

Result<RdmaTransport::Terms> RdmaTransport::terms_of(const Url& url,
                                                     const ConnectionOptions& options) const {
  const auto checked = FANIN_TRY(checked_options(*this, url, options));
  return Terms{checked, *rdma::receive_options(url)};
}

RdmaTransport::Connection&
RdmaTransport::make_connection(const Terms& terms, std::unique_ptr<rdma::Endpoint> endpoint) {
  const auto [id, connection] = connections_.emplace(
      terms.options, fillers_.of(*terms.options.receive_pool), expired_,
      [this](Connection& asks, const Resolver::Found& found) { take_addresses(asks, found); });
  connection.id = id;
  connection.receiving = terms.receives;
  connection.endpoint = std::move(endpoint);
  connection.endpoint->connection = &connection;
  connection.deadline.start(loop_, loop_.now() + options_.handshake_timeout);
  ++setting_up_;
  return connection;
}

Result<> RdmaTransport::open(Connection& connection) {
  memory::PagePool& pool = connection.filler->pool();
  SharedReceives* const shared = to_share(connection);
  if (shared != nullptr) connection.endpoint->share(shared->queue());
  auto limits = FANIN_TRY(connection.endpoint->open(pool));
  connection.limits = limits;
  std::unique_ptr<rdma::Receives> receives;
  if (shared == nullptr) {
    receives = std::make_unique<rdma::OwnReceives>(*connection.endpoint, pool,
                                                   connection.options.max_message,
                                                   connection.receiving.pages, limits.receives);
  } else {
    receives = std::make_unique<SharedReceives::Share>(*shared, shared_window(connection));
  }
  connection.traffic = std::make_unique<rdma::Traffic>(*connection.endpoint, std::move(receives));
  return {};
}

// Null: it gets receives of its own.
SharedReceives* RdmaTransport::to_share(Connection& connection) {
  memory::PagePool& pool = connection.filler->pool();
  const void* const device = connection.endpoint->device();
  if (device == nullptr) return nullptr;
  std::uint32_t own = 0;
  connections_.for_each([&](ConnectionId, const Connection& other) {
    if (other.options.receive_pool == &pool && other.traffic && !other.traffic->receives->shared())
      ++own;
  });
  if (own < connection.receiving.share_above) return nullptr;
  const rdma::SlotLayout layout(pool, connection.options.max_message, SharedReceives::slots_most);
  for (const auto& shared : shared_) {
    if (shared->suits(device, pool, layout, shared_window(connection))) return shared.get();
  }
  auto queue = connection.endpoint->make_shared_receive_queue();
  if (!queue) {
    if (!std::exchange(sharing_logged_, true)) {
      report(CloseReason::local, connection,
             fmt::format("connections cannot share receives and need twice the pages: {}; set "
                         "share_above in the address, so that fanin check counts them",
                         queue.error().text));
    }
    return nullptr;
  }
  auto made = std::make_unique<SharedReceives>(device, pool, layout, std::move(*queue));
  if (!made->suits(device, pool, layout, shared_window(connection))) return nullptr;
  return shared_.emplace_back(std::move(made)).get();
}

// As soon as one receive can be posted, the peer may be told of it.
void RdmaTransport::start(Connection& connection) {
  rdma::Traffic& traffic = *connection.traffic;
  const std::uint32_t posted = traffic.receives->replenish(collected_);
  post_collected(connection);
  if (connection.state.stage() != Stage::connecting) return;
  mark_starved(connection);
  if (posted == 0) return;
  connection.state.enter(Stage::handshake);
  const Hello hello{.max_message = connection.options.max_message,
                    .credits = traffic.credits.start(posted)};
  const auto started = connection.endpoint->start(encode(hello));
  if (started) return;
  refuse(connection.state.ours() ? CloseReason::connect_failed : CloseReason::peer_closed,
         connection, started.error().text);
}

void RdmaTransport::refuse(CloseReason reason, Connection& connection, std::string_view text) {
  report(reason, connection, text);
  end(connection, reason);
}

// --- listening and connecting ---

Result<ListenerId> RdmaTransport::listen(const Url& url, const ConnectionOptions& options) {
  const auto terms = FANIN_TRY(terms_of(url, options));
  const auto [id, listener] =
      listeners_.emplace(terms, [this](Listener& crowded) { make_room(crowded); });
  auto made = provider_->listen(url, id, *options.receive_pool);
  if (!made) {
    listeners_.erase(id);
    return std::unexpected(made.error());
  }
  listener.listening = std::move(*made);
  check_endpoints_ = true;
  return id;
}

Url RdmaTransport::listening_url(ListenerId listener) const {
  const Listener* const found = listeners_.find(listener);
  return found == nullptr ? Url{} : found->listening->url;
}

void RdmaTransport::close_listener(ListenerId listener) {
  if (listeners_.find(listener) == nullptr) return;
  listeners_.erase(listener);
  for (const ConnectionId id :
       unknown_to_owner(connections_, &Connection::state, listener, undispatched()))
    close(id, true);
}

Result<ConnectionId> RdmaTransport::connect(const Url& url, const ConnectionOptions& options) {
  const auto terms = FANIN_TRY(terms_of(url, options));
  if (url.port == 0) {
    return fail(ErrorKind::usage,
                fmt::format("{}: a port is missing, as in {}://host:7000", url.text(), url.scheme));
  }
  if (auto numbers = addresses_of_number(url.host)) {
    for (Address& address : *numbers) address.set_port(url.port);
    auto endpoint = FANIN_TRY(provider_->connect(url, *numbers));
    Connection& connection = make_connection(terms, std::move(endpoint));
    if (connection.endpoint->ready()) take_ready(connection);
    return connection.id;
  }
  Connection& connection = make_connection(terms, std::make_unique<NamelessEndpoint>());
  connection.endpoint->peer = url.text();
  connection.target = url;
  if (const auto found = loop_.resolver().ask(url.host, connection.question))
    take_addresses(connection, *found);
  return connection.id;
}

// Providers that take only one of them get the next one with the next attempt.
void RdmaTransport::take_addresses(Connection& connection, const Resolver::Found& found) {
  if (connection.state.stage() != Stage::connecting) return;
  if (!found) {
    const bool later = found.error().kind == ErrorKind::disconnected;
    return refuse(later ? CloseReason::connect_failed : CloseReason::unknown_host, connection,
                  found.error().text);
  }
  std::vector<Address> addresses = *found;
  for (Address& address : addresses) address.set_port(connection.target.port);
  const auto first = static_cast<std::ptrdiff_t>(names_tried_++ % addresses.size());
  std::ranges::rotate(addresses, addresses.begin() + first);
  auto endpoint = provider_->connect(connection.target, addresses);
  if (!endpoint) return refuse(CloseReason::connect_failed, connection, endpoint.error().text);
  connection.endpoint = std::move(*endpoint);
  connection.endpoint->connection = &connection;
  if (connection.endpoint->ready()) take_ready(connection);
}

// --- the events of endpoints ---

void RdmaTransport::read_events() {
  for (int left = completions_per_poll; left > 0; --left) {
    ProviderEvent event;
    if (!provider_->next_event(event)) return;
    take_event(event);
  }
}

void RdmaTransport::take_event(ProviderEvent& event) {
  if (event.kind == ProviderEvent::Kind::request) return take_request(event);
  if (event.kind == ProviderEvent::Kind::news) {
    if (options_.report) options_.report(CloseReason::peer_died, event.text);
    return;
  }
  Connection& connection = *event.endpoint->connection;
  const bool setting_up = connection.state.setting_up();
  switch (event.kind) {
  case ProviderEvent::Kind::ready:
    if (setting_up) take_ready(connection);
    return;
  case ProviderEvent::Kind::connected:
    if (connection.state.stage() == Stage::handshake) take_connected(connection, event.hello);
    return;
  case ProviderEvent::Kind::refused:
    if (setting_up) return take_refused(connection, event);
    [[fallthrough]];
  default: cut(connection, CloseReason::peer_died);
  }
}

void RdmaTransport::take_request(ProviderEvent& event) {
  const auto reject = [&](CloseReason reason, std::string_view why) {
    event.request->reject(encode(Hello{}));
    ++counters_.rejected;
    accounts_.refuse(reason);
    accounts_.report(reason, event.request->peer, why);
  };
  Listener* const listener = listeners_.find(event.listener);
  if (listener == nullptr) return event.request->reject(encode(Hello{}));
  const auto hello = rdma::decode_hello(event.hello);
  if (!hello) return reject(CloseReason::protocol_violation, hello.error().text);
  if (hello->version != rdma::protocol_version)
    return reject(CloseReason::version_mismatch,
                  other_version(hello->version, rdma::protocol_version));
  if (listener->pages + listener->waiting.size() >= options_.unidentified.peers_max)
    return reject(CloseReason::local, "too many unidentified peers are connected");
  Connection& connection = make_connection(listener->terms, std::move(event.request));
  connection.state.set_listener(event.listener);
  connection.identified = !listener->terms.options.peers_must_identify;
  connection.peer_max_message = hello->max_message;
  connection.peer_credits = hello->credits;
  if (connection.identified) return admit(connection);
  if (listener->waiting.empty()) listener->waiting_most = 0;
  listener->waiting.add(connection.waiting);
  listener->waiting_most = std::max(listener->waiting_most, listener->waiting.size());
  admit_waiting(*listener);
}

// Errors: exhausted, if connections keep all pages of its receive pool: none comes back before one
// of them has ended. Pages that the application holds are waited for.
Result<> RdmaTransport::check_room(const Connection& connection) const {
  const memory::PagePool& pool = connection.filler->pool();
  if (pool.available() > 0) return {};
  std::uint32_t connections = 0;
  std::uint32_t kept = 0;
  connections_.for_each([&](ConnectionId, const Connection& other) {
    if (&other.filler->pool() != &pool || !other.state.is_open()) return;
    ++connections;
    const std::uint32_t pages = other.receiving.pages;
    kept += !other.identified ? 1 : other.traffic->receives->shared() ? (pages + 1) / 2 : pages;
  });
  if (kept < pool.pages()) return {};
  return fail(ErrorKind::exhausted,
              fmt::format("there is no room for this connection: {} connections keep the {} pages "
                          "of the receive pool posted; a pool of {} pages for each connection and "
                          "{} more has room for all (--peers of the commands, "
                          "ContextOptions::receive_pool of message sockets)",
                          connections, pool.pages(), connection.receiving.pages,
                          rdma::unidentified_pages));
}

void RdmaTransport::admit(Connection& connection) {
  auto opened = check_room(connection);
  if (opened) opened = open(connection);
  if (!opened) {
    ++counters_.rejected;
    return refuse(CloseReason::local, connection, opened.error().text);
  }
  connection.traffic->credits.take_hello({.credits = connection.peer_credits});
  connection.traffic->receives->set_limited(!connection.identified);
  start(connection);
}

// --- peers that have not said who they are ---

void RdmaTransport::admit_waiting(Listener& listener) {
  while (!listener.waiting.empty() && listener.pages < listener.pages_max) {
    Connection& connection = *listener.waiting.take();
    connection.admitted = true;
    ++listener.pages;
    listener.unidentified.add(connection.unidentified, loop_.now());
    admit(connection);
  }
  listener.unidentified.set_patience(patience(listener));
  listener.eviction_tick.set(
      loop_, listener.pages_wanted() > 0 ? listener.unidentified.next_eviction() : never);
}

// All who wait get a page within half of the time that they have for their handshake.
Duration RdmaTransport::patience(const Listener& listener) const {
  const auto turns = static_cast<Duration::rep>(1 + listener.waiting_most / listener.pages_max);
  return std::min(options_.unidentified.patience, options_.handshake_timeout / (2 * turns));
}

// It has said who it is, or holds no page any more.
void RdmaTransport::leave_unidentified(Connection& connection) {
  if (!std::exchange(connection.admitted, false)) return;
  connection.unidentified.mark_identified();
  Listener* const listener = listeners_.find(connection.state.listener());
  if (listener == nullptr) return;
  --listener->pages;
  admit_waiting(*listener);
}

// Those who have had their time go, as many as wait.
void RdmaTransport::make_room(Listener& listener) {
  while (listener.pages_wanted() > 0) {
    Connection* const oldest = listener.unidentified.peer_to_evict(loop_.now());
    if (oldest == nullptr) break;
    evict(*oldest);
  }
  admit_waiting(listener);
}

// One that was closed here is told nothing more, and neither is its owner.
void RdmaTransport::evict(Connection& unidentified) {
  if (unidentified.state.stage() == Stage::closing) return retire(unidentified);
  refuse(CloseReason::evicted, unidentified, "did not identify itself, and others wait");
}

void RdmaTransport::take_ready(Connection& connection) {
  if (auto opened = open(connection); !opened) {
    report(CloseReason::local, connection, opened.error().text);
    return end(connection, CloseReason::connect_failed);
  }
  start(connection);
}

void RdmaTransport::take_connected(Connection& connection, const rdma::HelloBytes& bytes) {
  if (connection.state.ours()) {
    const auto hello = rdma::decode_hello(bytes);
    if (!hello) return refuse(CloseReason::protocol_violation, connection, hello.error().text);
    if (hello->version != rdma::protocol_version)
      return refuse(CloseReason::version_mismatch, connection,
                    other_version(hello->version, rdma::protocol_version));
    connection.peer_max_message = hello->max_message;
    connection.traffic->credits.take_hello(*hello);
  }
  --setting_up_;
  connection.state.enter(Stage::open);
  connection.deadline.cancel();
  if (!probe_tick_.active()) probe_tick_.start(loop_, loop_.now() + options_.keep_alive);
  ready_.add(connection.ready);
}

// A connection that could not be made, or a refusal with the peer's hello.
void RdmaTransport::take_refused(Connection& connection, const ProviderEvent& event) {
  const auto hello = rdma::decode_hello(event.hello);
  if (hello && hello->version != rdma::protocol_version)
    return refuse(CloseReason::version_mismatch, connection,
                  other_version(hello->version, rdma::protocol_version));
  refuse(connection.state.ours() ? CloseReason::connect_failed : CloseReason::peer_closed,
         connection,
         hello ? "the peer has no room for this connection; its log says why" : event.text);
}

} // namespace fanin::net
