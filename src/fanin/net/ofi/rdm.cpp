#include "fanin/net/ofi/rdm.hpp"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include <fmt/format.h>

#include "fanin/base/try.hpp"
#include "fanin/base/units.hpp"
#include "fanin/net/ofi/introduction.hpp"
#include "fanin/net/ofi/messages.hpp"
#include "fanin/net/ofi/rdm_connection.hpp"
#include "fanin/net/tcp_socket.hpp"

namespace fanin::net::ofi {

using rdma::Completion;
using rdma::ProviderEvent;

namespace {

constexpr int accepts_at_once = 16;
// For a peer to introduce itself, for a peer to end, and how often that is looked at.
constexpr Duration patience = std::chrono::seconds{5};
constexpr Duration check_period = std::chrono::seconds{1};
// Between looks where the provider wakes nobody: doubled while nothing comes.
constexpr Duration pause_least = std::chrono::microseconds{50};
constexpr Duration pause_most = std::chrono::milliseconds{1};

std::uint64_t tag_of(const fi_cq_tagged_entry& entry) {
  return entry.tag & ((1U << number_shift) - 1);
}

} // namespace

struct UnidentifiedPeer final : Watched {
  explicit UnidentifiedPeer(RdmProvider& owner) : provider(owner) {}
  void on_ready(std::uint32_t events) override;
  RdmProvider& provider;
  RdmListening* listening = nullptr;
  Descriptor socket;
  std::string peer;
  std::vector<std::byte> introduction;
  Time since{};
  UnidentifiedPeers<UnidentifiedPeer>::Entry entry{*this};
};

std::string domain_of(const Url& url) {
  const auto option = url.options.find(std::string(domain_option));
  return option == url.options.end() ? "" : option->second;
}

// --- listening ---

RdmListening::~RdmListening() { provider.drop_all_of(*this); }

void RdmListening::on_ready(std::uint32_t) { provider.accept(*this); }

void RdmProvider::accept(RdmListening& listening) {
  for (int left = accepts_at_once; left > 0; --left) {
    Address peer;
    Descriptor socket;
    const bool admits = unidentified_.admits(now());
    if (admits) socket = accept_from(listening.socket.get(), peer);
    if (!socket) {
      const bool none = admits && errno == EAGAIN;
      if (none || std::exchange(listening.paused, true)) return;
      unwatch(listening.socket.get());
      check_timeouts_later();
      return;
    }
    // What it has sent in time is read before it is judged.
    if (unidentified_.full()) unidentified_.peer_to_evict(now())->on_ready(EPOLLIN);
    if (unidentified_.full()) evict(*unidentified_.peer_to_evict(now()));
    auto unidentified = std::make_unique<UnidentifiedPeer>(*this);
    unidentified->listening = &listening;
    unidentified->peer = Url{.scheme = scheme(), .host = peer.host(), .port = peer.port()}.text();
    unidentified->since = now();
    if (!watch(socket.get(), EPOLLIN, unidentified.get())) {
      queue_event({.text = fmt::format("{}: epoll: {}", unidentified->peer, std::strerror(errno))});
      continue;
    }
    unidentified->socket = std::move(socket);
    unidentified_.add(unidentified->entry, now());
    accepted_.push_back(std::move(unidentified));
    check_timeouts_later();
  }
}

void UnidentifiedPeer::on_ready(std::uint32_t) {
  std::array<std::byte, introduction_most> room;
  const ssize_t got = ::recv(socket.get(), room.data(), room.size() - introduction.size(), 0);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (got <= 0) return provider.drop(*this);
  introduction.insert(introduction.end(), room.begin(), room.begin() + got);
  const auto made = decode_introduction(introduction);
  if (!made || *made) provider.introduced(*this, !made);
}

// The transport says what is wrong with who is none of fanin.
void RdmProvider::introduced(UnidentifiedPeer& unidentified, bool as_none_of_fanin) {
  Introduction introduction;
  if (!as_none_of_fanin) introduction = *decode_introduction(unidentified.introduction).value();
  if (introduction.refused) return drop(unidentified);
  ProviderEvent event{.kind = ProviderEvent::Kind::request, .hello = introduction.hello};
  const std::size_t size = std::min(size_of(introduction), unidentified.introduction.size());
  std::vector<std::byte> rest(unidentified.introduction.begin() + static_cast<std::ptrdiff_t>(size),
                              unidentified.introduction.end());
  event.listener = unidentified.listening->id;
  unwatch(unidentified.socket.get());
  event.request = std::make_unique<RdmConnection>(*this, std::move(unidentified.socket),
                                                  std::move(introduction), std::move(rest),
                                                  domain_of(unidentified.listening->url));
  event.request->peer = unidentified.peer;
  drop(unidentified);
  queue_event(std::move(event));
}

void RdmProvider::evict(const UnidentifiedPeer& unidentified) {
  queue_event(
      {.text = fmt::format("{}: did not identify itself, and others wait", unidentified.peer)});
  drop(unidentified);
}

void RdmProvider::drop(const UnidentifiedPeer& unidentified) {
  std::erase_if(accepted_, [&](const auto& known) { return known.get() == &unidentified; });
  resume();
}

void RdmProvider::drop_all_of(const RdmListening& listening) {
  std::erase_if(accepted_, [&](const auto& known) { return known->listening == &listening; });
  std::erase(listenings_, &listening);
}

void RdmProvider::resume() {
  for (RdmListening* const listening : listenings_) {
    if (!listening->paused || !watch(listening->socket.get(), EPOLLIN, listening)) continue;
    listening->paused = false;
  }
}

Result<std::unique_ptr<rdma::Listening>> RdmProvider::listen(const Url& url, ListenerId id,
                                                             const memory::PagePool& receive_pool) {
  const auto addresses = FANIN_TRY(resolve(url, true));
  auto socket = FANIN_TRY(bind_and_listen(url, addresses));
  set_stream_options(socket.get(), {}); // accepted sockets inherit them
  auto listening = std::make_unique<RdmListening>(*this);
  listening->socket = std::move(socket);
  listening->id = id;
  listening->url = url;
  if (url.host.empty()) listening->url.host = "127.0.0.1";
  listening->url.port = local_address(listening->socket.get()).port();
  // What there is not, and what may not be locked, shows now, and not with a peer.
  const auto made = FANIN_TRY(endpoint(listening->url.host, true, domain_of(url)));
  if (receive_pool.arena() != nullptr) FANIN_TRY(made->domain().description(*receive_pool.arena()));
  if (!watch(listening->socket.get(), EPOLLIN, listening.get()))
    return fail_errno(ErrorKind::exhausted, fmt::format("{}: epoll", url.text()), errno);
  listenings_.push_back(listening.get());
  return listening;
}

Result<std::unique_ptr<rdma::Endpoint>> RdmProvider::connect(const Url& url,
                                                             std::span<const Address> addresses) {
  return std::make_unique<RdmConnection>(*this, url,
                                         std::vector<Address>(addresses.begin(), addresses.end()));
}

// --- the provider ---

RdmProvider::RdmProvider(Loop& loop, std::string_view provider, Descriptor epoll,
                         Descriptor sockets)
    : loop_(loop),
      name_(provider),
      own_endpoints_(has_endpoints_to_spare(provider)),
      epoll_(std::move(epoll)),
      sockets_(std::move(sockets)),
      pause_(pause_least) {}

RdmProvider::~RdmProvider() = default;

void RdmProvider::stop() {
  for (RdmConnection* const connection : connections_) connection->abandon();
  endpoints_.clear();
  done_.clear();
}

Result<> RdmProvider::check(const Url& url) const {
  FANIN_TRY(check_options(url, EndpointKind::datagrams));
  const std::string domain = domain_of(url);
  return domain.empty() ? Result<>{} : check_domain(name_, domain);
}

// The provider is asked each time: shm looks whether there is memory for one more.
Result<std::shared_ptr<RdmEndpoint>> RdmProvider::endpoint(const std::string& host, bool here,
                                                           const std::string& domain) {
  auto info = FANIN_TRY(find_datagrams(name_, host, here, domain));
  const std::string name = info->domain_attr->name;
  for (const auto& [known, endpoint] : endpoints_) {
    if (known == name) return endpoint;
  }
  const auto found = FANIN_TRY(domains_.domain_of(*info));
  const auto completions =
      FANIN_TRY(domains_.completions(*found, RdmEndpoint::operations_of(*info)));
  auto made = RdmEndpoint::open(*found, *completions, *info, own_endpoints_);
  if (made && !own_endpoints_) endpoints_.emplace_back(name, *made);
  return made;
}

std::uint32_t RdmProvider::next_number() {
  last_number_ = number_after(last_number_, [this](std::uint32_t number) {
    return std::ranges::any_of(connections_, [&](const RdmConnection* connection) {
      return connection->number() == number;
    });
  });
  return last_number_;
}

bool RdmProvider::watch(int socket, std::uint32_t events, Watched* watched, bool known) {
  epoll_event event{.events = events, .data = {.ptr = watched}};
  return epoll_ctl(sockets_.get(), known ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, socket, &event) == 0;
}

void RdmProvider::unwatch(int socket) {
  (void)epoll_ctl(sockets_.get(), EPOLL_CTL_DEL, socket, nullptr);
}

void RdmProvider::forget_events(const RdmConnection& connection) {
  std::erase_if(events_, [&](const ProviderEvent& event) { return event.endpoint == &connection; });
}

void RdmProvider::remove(const RdmConnection& connection) {
  forget_events(connection);
  std::erase(connections_, &connection);
  std::erase(awaiting_post_, &connection);
  std::erase_if(done_, [&](const Completion& completion) {
    return completion.operation->endpoint == &connection;
  });
}

std::size_t RdmProvider::completions(std::span<Completion> to) {
  for (RdmConnection* const connection : std::exchange(awaiting_post_, {}))
    connection->go_on_posting();
  for (const auto& domain : domains_.all()) {
    for (const auto& queue : domain->all_completions()) {
      for (std::size_t count = read_.size(); count == read_.size();) {
        count = read<fi_cq_tagged_entry>(*queue, read_, tag_of);
        for (const Completion& completion : std::span(read_).first(count))
          static_cast<RdmConnection*>(completion.operation->endpoint)->completed(completion);
        if (count > 0) pause_ = pause_least;
      }
    }
  }
  std::size_t count = 0;
  for (; count < to.size() && !done_.empty(); done_.pop_front()) to[count++] = done_.front();
  return count;
}

bool RdmProvider::arm() {
  if (!events_.empty() || !done_.empty() || !awaiting_post_.empty() || !domains_.arm())
    return false;
  const bool must_poll =
      !connections_.empty() && std::ranges::any_of(domains_.all(), [](const auto& domain) {
        return std::ranges::any_of(domain->all_completions(),
                                   [](const auto& queue) { return queue->descriptor < 0; });
      });
  if (must_poll) {
    poll_again_.start(loop_, loop_.now() + pause_);
    pause_ = std::min(2 * pause_, pause_most);
  }
  return true;
}

bool RdmProvider::next_event(ProviderEvent& event) {
  for (;;) {
    if (!events_.empty()) {
      event = std::move(events_.front());
      events_.pop_front();
      return true;
    }
    epoll_event ready{}; // one at a time: it may end what the next one is of
    if (epoll_wait(sockets_.get(), &ready, 1, 0) <= 0) return false;
    static_cast<Watched*>(ready.data.ptr)->on_ready(ready.events);
  }
}

// --- those who keep others waiting ---

void RdmProvider::check_timeouts_later() {
  if (!timeout_check_.active()) timeout_check_.start(loop_, loop_.now() + check_period);
}

void RdmProvider::check_timeouts() {
  const Time long_ago = loop_.now() - patience;
  std::vector<UnidentifiedPeer*> late;
  for (const auto& unidentified : accepted_) {
    if (unidentified->since <= long_ago) late.push_back(unidentified.get());
  }
  for (UnidentifiedPeer* const unidentified : late) unidentified->on_ready(EPOLLIN); // may end it
  std::erase_if(accepted_, [&](const auto& unidentified) {
    if (unidentified->since > long_ago) return false;
    queue_event({.text = fmt::format("{}: did not identify itself within {}", unidentified->peer,
                                     format_duration(patience))});
    return true;
  });
  resume();
  for (RdmConnection* const connection : connections_) connection->wait_no_longer(long_ago);
  const bool paused = std::ranges::any_of(
      listenings_, [](const RdmListening* listening) { return listening->paused; });
  if (paused || !accepted_.empty() ||
      std::ranges::any_of(connections_,
                          [](const RdmConnection* connection) { return connection->waits(); }))
    check_timeouts_later();
}

} // namespace fanin::net::ofi
