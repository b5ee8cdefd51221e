#include "fanin/net/ofi/rdm.hpp"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>

#include <fmt/format.h>

#include "fanin/base/units.hpp"
#include "fanin/net/ofi/introduction.hpp"
#include "fanin/net/ofi/messages.hpp"
#include "fanin/net/ofi/rdm_link.hpp"
#include "fanin/net/posted/pages.hpp"
#include "fanin/net/tcp_socket.hpp"

namespace fanin::net::ofi {

using posted::Completion;
using posted::LinkEvent;

namespace {

constexpr std::string_view domain_option = "domain";
constexpr int accepts_at_once = 16;
// For a peer to introduce itself, for a peer to end, and how often that is looked at.
constexpr Duration patience = std::chrono::seconds{5};
constexpr Duration tending_period = std::chrono::seconds{1};
// Between looks where the provider wakes nobody: doubled while nothing comes.
constexpr Duration pause_least = std::chrono::microseconds{50};
constexpr Duration pause_most = std::chrono::milliseconds{1};

std::uint64_t tag_of(const fi_cq_tagged_entry& entry) {
  return entry.tag & ((1U << number_shift) - 1);
}

} // namespace

struct UnidentifiedPeer final : Watched {
  explicit UnidentifiedPeer(RdmNetwork& owner) : network(owner) {}
  void on_ready(std::uint32_t events) override;
  RdmNetwork& network;
  RdmListening* listening = nullptr;
  Descriptor socket;
  std::string peer;
  std::vector<std::byte> said;
  Time since{};
  UnidentifiedPeers<UnidentifiedPeer>::Entry entry{*this};
};

std::string domain_of(const Url& url) {
  const auto option = url.options.find(std::string(domain_option));
  return option == url.options.end() ? "" : option->second;
}

// --- listening ---

RdmListening::~RdmListening() { network.drop_all_of(*this); }

void RdmListening::on_ready(std::uint32_t) { network.accept(*this); }

void RdmNetwork::accept(RdmListening& listening) {
  for (int left = accepts_at_once; left > 0; --left) {
    Address peer;
    Descriptor socket;
    const bool admits = unidentified_.admits(now());
    if (admits) socket = accept_from(listening.socket.get(), peer);
    if (!socket) {
      const bool none = admits && errno == EAGAIN;
      if (none || std::exchange(listening.paused, true)) return;
      unwatch(listening.socket.get());
      tend_later();
      return;
    }
    if (unidentified_.full()) evict(*unidentified_.peer_to_evict(now()));
    auto unidentified = std::make_unique<UnidentifiedPeer>(*this);
    unidentified->listening = &listening;
    unidentified->peer = Url{.scheme = scheme(), .host = peer.host(), .port = peer.port()}.text();
    unidentified->since = now();
    if (!watch(socket.get(), EPOLLIN, unidentified.get())) continue;
    unidentified->socket = std::move(socket);
    unidentified_.add(unidentified->entry, now());
    accepted_.push_back(std::move(unidentified));
    tend_later();
  }
}

void UnidentifiedPeer::on_ready(std::uint32_t) {
  std::array<std::byte, introduction_most> room;
  const ssize_t got = ::recv(socket.get(), room.data(), room.size() - said.size(), 0);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (got <= 0) return network.drop(*this);
  said.insert(said.end(), room.begin(), room.begin() + got);
  const auto made = decode_introduction(said);
  if (!made || *made) network.introduced(*this, !made);
}

// The transport says what is wrong with who is none of fanin.
void RdmNetwork::introduced(UnidentifiedPeer& unidentified, bool as_none_of_fanin) {
  Introduction said;
  if (!as_none_of_fanin) said = *decode_introduction(unidentified.said).value();
  if (said.refused) return drop(unidentified);
  LinkEvent event{.kind = LinkEvent::Kind::request, .hello = said.hello};
  const std::size_t size = std::min(size_of(said), unidentified.said.size());
  std::vector<std::byte> rest(unidentified.said.begin() + static_cast<std::ptrdiff_t>(size),
                              unidentified.said.end());
  event.listener = unidentified.listening->id;
  unwatch(unidentified.socket.get());
  event.request =
      std::make_unique<RdmLink>(*this, std::move(unidentified.socket), std::move(said),
                                std::move(rest), domain_of(unidentified.listening->url));
  event.request->peer = unidentified.peer;
  drop(unidentified);
  say(std::move(event));
}

void RdmNetwork::evict(const UnidentifiedPeer& unidentified) {
  say({.text = fmt::format("{}: did not identify itself, and others wait", unidentified.peer)});
  drop(unidentified);
}

void RdmNetwork::drop(const UnidentifiedPeer& unidentified) {
  std::erase_if(accepted_, [&](const auto& known) { return known.get() == &unidentified; });
  resume();
}

void RdmNetwork::drop_all_of(const RdmListening& listening) {
  std::erase_if(accepted_, [&](const auto& known) { return known->listening == &listening; });
  std::erase(listenings_, &listening);
}

void RdmNetwork::resume() {
  for (RdmListening* const listening : listenings_) {
    if (!listening->paused || !watch(listening->socket.get(), EPOLLIN, listening)) continue;
    listening->paused = false;
  }
}

Result<std::unique_ptr<posted::Listening>>
RdmNetwork::listen(const Url& url, ListenerId id, const memory::PagePool& receive_pool) {
  const auto addresses = resolve(url, true);
  if (!addresses) return std::unexpected(addresses.error());
  auto socket = bind_and_listen(url, *addresses);
  if (!socket) return std::unexpected(socket.error());
  set_stream_options(socket->get(), {}); // accepted sockets inherit them
  auto listening = std::make_unique<RdmListening>(*this);
  listening->socket = std::move(*socket);
  listening->id = id;
  listening->url = url;
  if (url.host.empty()) listening->url.host = "127.0.0.1";
  listening->url.port = local_address(listening->socket.get()).port();
  // What there is not, and what may not be locked, shows now, and not with a peer.
  const auto made = endpoint(listening->url.host, true, domain_of(url));
  if (!made) return std::unexpected(made.error());
  if (receive_pool.arena() != nullptr) {
    if (const auto known = (*made)->domain().description(*receive_pool.arena()); !known)
      return std::unexpected(known.error());
  }
  if (!watch(listening->socket.get(), EPOLLIN, listening.get()))
    return fail_errno(ErrorKind::exhausted, fmt::format("{}: epoll", url.text()), errno);
  listenings_.push_back(listening.get());
  return listening;
}

Result<std::unique_ptr<posted::Link>> RdmNetwork::connect(const Url& url,
                                                          std::span<const Address> addresses) {
  return std::make_unique<RdmLink>(*this, url,
                                   std::vector<Address>(addresses.begin(), addresses.end()));
}

// --- the network ---

RdmNetwork::RdmNetwork(Loop& loop, std::string_view provider, Descriptor epoll, Descriptor sockets)
    : loop_(loop),
      provider_(provider),
      own_endpoints_(has_endpoints_to_spare(provider)),
      epoll_(std::move(epoll)),
      sockets_(std::move(sockets)),
      pause_(pause_least) {}

RdmNetwork::~RdmNetwork() = default;

void RdmNetwork::stop() {
  for (RdmLink* const link : links_) link->abandon();
  endpoints_.clear();
  done_.clear();
}

Result<> RdmNetwork::check(const Url& url) const {
  for (const auto& [name, value] : url.options) {
    if (name == posted::pages_option || name == domain_option) continue;
    return fail(ErrorKind::usage,
                fmt::format("{}: option \"{}\" is not known; {}:// has posted=N, the pages of the "
                            "receive pool that a connection keeps posted, and domain=NAME, which "
                            "of the provider's devices",
                            url.text(), name, url.scheme));
  }
  return {};
}

// The provider is asked each time: shm looks whether there is memory for one more.
Result<std::shared_ptr<RdmEndpoint>> RdmNetwork::endpoint(const std::string& host, bool here,
                                                          const std::string& domain) {
  auto info = find_datagrams(provider_, host, here, domain);
  if (!info) return std::unexpected(info.error());
  const std::string name = (*info)->domain_attr->name;
  for (const auto& [known, endpoint] : endpoints_) {
    if (known == name) return endpoint;
  }
  const auto found = domains_.domain_of(**info);
  if (!found) return std::unexpected(found.error());
  const auto completions = domains_.completions(**found, RdmEndpoint::operations_of(**info));
  if (!completions) return std::unexpected(completions.error());
  auto made = RdmEndpoint::open(**found, **completions, **info, own_endpoints_);
  if (made && !own_endpoints_) endpoints_.emplace_back(name, *made);
  return made;
}

std::uint32_t RdmNetwork::next_number() {
  last_number_ = number_after(last_number_, [this](std::uint32_t number) {
    return std::ranges::any_of(links_,
                               [&](const RdmLink* link) { return link->number() == number; });
  });
  return last_number_;
}

bool RdmNetwork::watch(int socket, std::uint32_t events, Watched* watched, bool known) {
  epoll_event event{.events = events, .data = {.ptr = watched}};
  return epoll_ctl(sockets_.get(), known ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, socket, &event) == 0;
}

void RdmNetwork::unwatch(int socket) {
  (void)epoll_ctl(sockets_.get(), EPOLL_CTL_DEL, socket, nullptr);
}

void RdmNetwork::forget_events(const RdmLink& link) {
  std::erase_if(events_, [&](const LinkEvent& event) { return event.link == &link; });
}

void RdmNetwork::remove(const RdmLink& link) {
  forget_events(link);
  std::erase(links_, &link);
  std::erase(short_, &link);
  std::erase_if(done_,
                [&](const Completion& completion) { return completion.operation->link == &link; });
}

std::size_t RdmNetwork::completions(std::span<Completion> to) {
  for (RdmLink* const link : std::exchange(short_, {})) link->go_on_posting();
  for (const auto& domain : domains_.all()) {
    for (const auto& queue : domain->all_completions()) {
      for (std::size_t count = read_.size(); count == read_.size();) {
        count = read<fi_cq_tagged_entry>(*queue, read_, tag_of);
        for (const Completion& completion : std::span(read_).first(count))
          static_cast<RdmLink*>(completion.operation->link)->completed(completion);
        if (count > 0) pause_ = pause_least;
      }
    }
  }
  std::size_t count = 0;
  for (; count < to.size() && !done_.empty(); done_.pop_front()) to[count++] = done_.front();
  return count;
}

bool RdmNetwork::arm() {
  if (!events_.empty() || !done_.empty() || !short_.empty() || !domains_.arm()) return false;
  const bool unheard =
      !links_.empty() && std::ranges::any_of(domains_.all(), [](const auto& domain) {
        return std::ranges::any_of(domain->all_completions(),
                                   [](const auto& queue) { return queue->descriptor < 0; });
      });
  if (unheard) {
    look_again_.start(loop_, loop_.now() + pause_);
    pause_ = std::min(2 * pause_, pause_most);
  }
  return true;
}

bool RdmNetwork::next_event(LinkEvent& event) {
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

void RdmNetwork::tend_later() {
  if (!tending_.active()) tending_.start(loop_, loop_.now() + tending_period);
}

void RdmNetwork::tend() {
  const Time long_ago = loop_.now() - patience;
  std::erase_if(accepted_, [&](const auto& unidentified) {
    if (unidentified->since > long_ago) return false;
    say({.text = fmt::format("{}: did not identify itself within {}", unidentified->peer,
                             format_duration(patience))});
    return true;
  });
  resume();
  for (RdmLink* const link : links_) link->wait_no_longer(long_ago);
  const bool paused = std::ranges::any_of(
      listenings_, [](const RdmListening* listening) { return listening->paused; });
  if (paused || !accepted_.empty() ||
      std::ranges::any_of(links_, [](const RdmLink* link) { return link->waits(); }))
    tend_later();
}

} // namespace fanin::net::ofi
