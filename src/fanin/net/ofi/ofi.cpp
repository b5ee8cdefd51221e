#include "fanin/net/ofi/ofi.hpp"

#include <fcntl.h>
#include <sys/epoll.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <filesystem>
#include <system_error>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "fanin/base/descriptor.hpp"
#include "fanin/base/try.hpp"
#include "fanin/net/ofi/fabric.hpp"
#include "fanin/net/ofi/messages.hpp"
#include "fanin/net/ofi/rdm.hpp"
#include "fanin/net/tcp_socket.hpp"

namespace fanin::net::ofi {
namespace {

using rdma::Completion;
using rdma::HelloBytes;
using rdma::ProviderEvent;

constexpr std::uint32_t operations_each = rdma::receives_most + rdma::sends_most;
constexpr std::size_t private_data_most = 256;
// Reads without an event, one after the other. Data that come make the provider busy, too.
constexpr int idle_reads_most = 8;

bool is_taken(long error) { return error == -FI_EADDRINUSE || error == -FI_EBUSY; }

HelloBytes hello_in(std::span<const std::byte> data) {
  HelloBytes hello{};
  std::ranges::copy(data.first(std::min(data.size(), hello.size())), hello.begin());
  return hello;
}

std::uint64_t tag_of(const fi_cq_data_entry& entry) {
  return (entry.flags & FI_REMOTE_CQ_DATA) != 0 ? entry.data : Completion::no_tag;
}

std::unexpected<Error> failed(ErrorKind kind, std::string_view what, long error) {
  return fail(kind, fmt::format("{}: {}", what, error_text(error)));
}

// libfabric leaves its sockets open in programs that this process executes. Those would keep the
// port, and their peers would not notice that this process is dead. It does not say which sockets
// are its own, but the port does.
void close_on_exec(std::uint16_t port) {
  if (port == 0) return; // the provider has no sockets
  std::error_code unreadable;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd", unreadable)) {
    const std::string name = entry.path().filename().string();
    int descriptor = -1;
    (void)std::from_chars(name.data(), name.data() + name.size(), descriptor);
    const int flags = ::fcntl(descriptor, F_GETFD);
    if (flags < 0 || (flags & FD_CLOEXEC) != 0 || local_address(descriptor).port() != port)
      continue;
    (void)::fcntl(descriptor, F_SETFD, flags | FD_CLOEXEC);
  }
}

// 0: it has no IP address.
std::uint16_t port_of(fid& endpoint) {
  Address address;
  std::size_t size = sizeof address.storage;
  return fi_getname(&endpoint, &address.storage, &size) == 0 ? address.port() : std::uint16_t{0};
}

struct OfiListening final : rdma::Listening {
  explicit OfiListening(std::vector<const OfiListening*>& listening) : all(listening) {
    all.push_back(this);
  }
  ~OfiListening() override { std::erase(all, this); }
  std::vector<const OfiListening*>& all; // of the provider
  Owned<fid_pep> endpoint;
  ListenerId id = ListenerId::none;
};

class OfiProvider final : public rdma::Provider {
public:
  OfiProvider(std::string_view provider, Descriptor epoll, bool polls)
      : name_(provider), epoll_(std::move(epoll)), domains_(epoll_.get(), polls) {}

  [[nodiscard]] std::string scheme() const override { return "ofi+" + name_; }
  [[nodiscard]] Result<> check(const Url& url) const override;
  [[nodiscard]] Result<std::unique_ptr<rdma::Listening>>
  listen(const Url& url, ListenerId id, const memory::PagePool& receive_pool) override;
  [[nodiscard]] Result<std::unique_ptr<rdma::Endpoint>>
  connect(const Url& url, std::span<const Address> addresses) override;
  [[nodiscard]] std::size_t completions(std::span<Completion> to) override;
  [[nodiscard]] bool next_event(ProviderEvent& event) override;
  [[nodiscard]] bool arm() override { return waited_ = domains_.arm(); }
  [[nodiscard]] int descriptor() const override { return epoll_.get(); }

  [[nodiscard]] Domains& domains() { return domains_; }

private:
  [[nodiscard]] bool next_event(Fabric& fabric, ProviderEvent& event);
  static void take_error(Fabric& fabric, ProviderEvent& event);
  [[nodiscard]] bool take_request(const fi_eq_cm_entry& entry, ProviderEvent& event);

  std::string name_;
  Descriptor epoll_;
  Domains domains_;
  std::vector<const OfiListening*> listening_;
  bool waited_ = false; // since the last event was looked for
  bool accepted_ = false; // a connection, since there was no event
};

class OfiConnection final : public rdma::Endpoint {
public:
  OfiConnection(OfiProvider& provider, Info info, fid_pep* passive)
      : provider_(provider), info_(std::move(info)), passive_(passive) {}
  ~OfiConnection() override {
    if (completions_ != nullptr) completions_->room += operations_each;
  }

  [[nodiscard]] Result<Limits> open(const memory::PagePool& receive_pool) override;
  [[nodiscard]] Result<> start(const HelloBytes& hello) override;
  void reject(const HelloBytes& hello) override {
    (void)fi_reject(passive_, info_->handle, hello.data(), hello.size());
  }
  [[nodiscard]] Result<> post_receives(std::span<const rdma::Receive> receives,
                                       std::uint32_t size) override;
  [[nodiscard]] Result<std::size_t> post_sends(std::span<const rdma::Send> sends) override;
  [[nodiscard]] Result<> reach(const memory::Arena& arena) override;
  void close() override;

private:
  [[nodiscard]] ssize_t copy_out(const rdma::Send& send);
  [[nodiscard]] ssize_t post(const rdma::Send& send);

  OfiProvider& provider_;
  Info info_; // until it is started
  fid_pep* passive_; // of the listener; null: connect() made it
  Domain* domain_ = nullptr;
  Completions* completions_ = nullptr;
  void* receive_description_ = nullptr; // of the receive pool's memory
  Owned<fid_ep> endpoint_;
};

// --- connections ---

Result<rdma::Endpoint::Limits> OfiConnection::open(const memory::PagePool& receive_pool) {
  domain_ = FANIN_TRY(provider_.domains().domain_of(*info_));
  completions_ = FANIN_TRY(provider_.domains().completions(*domain_, operations_each));
  completions_->room -= operations_each;
  if (const memory::Arena* const arena = receive_pool.arena(); arena != nullptr) {
    receive_description_ = FANIN_TRY(domain_->description(*arena));
  }
  fid_ep* endpoint = nullptr;
  long error = fi_endpoint(domain_->get(), info_.get(), &endpoint, this);
  endpoint_.reset(error == 0 ? endpoint : nullptr);
  if (error == 0) error = fi_ep_bind(endpoint, &domain_->fabric().events->fid, 0);
  if (error == 0) error = fi_ep_bind(endpoint, &completions_->queue->fid, FI_TRANSMIT | FI_RECV);
  if (error == 0) error = fi_enable(endpoint);
  if (error != 0) {
    return fail(ErrorKind::exhausted,
                fmt::format("no endpoint of {}://: {}; `ulimit -n` (open files) and `ulimit -l` "
                            "(locked memory) may be too low",
                            provider_.scheme(), error_text(error)));
  }
  return Limits{.receives = static_cast<std::uint32_t>(
                    std::min<std::size_t>(rdma::receives_most, info_->rx_attr->size)),
                .inline_most =
                    static_cast<std::uint32_t>(std::min(info_->tx_attr->inject_size, copied_room)),
                .pieces_most = info_->tx_attr->iov_limit,
                .reads_anything = !domain_->needs_registration()};
}

Result<> OfiConnection::start(const HelloBytes& hello) {
  const long error = passive_ == nullptr
                         ? fi_connect(endpoint_.get(), info_->dest_addr, hello.data(), hello.size())
                         : fi_accept(endpoint_.get(), hello.data(), hello.size());
  info_.reset();
  if (error != 0) return failed(ErrorKind::refused, "it cannot be connected", error);
  if (passive_ == nullptr) close_on_exec(port_of(endpoint_->fid));
  return {};
}

Result<> OfiConnection::post_receives(std::span<const rdma::Receive> receives, std::uint32_t size) {
  for (const rdma::Receive& receive : receives) {
    const ssize_t error =
        fi_recv(endpoint_.get(), receive.to, size, receive_description_, 0, receive.operation);
    if (error != 0) return failed(ErrorKind::internal, "cannot post a receive", error);
  }
  return {};
}

Result<std::size_t> OfiConnection::post_sends(std::span<const rdma::Send> sends) {
  std::size_t count = 0;
  for (; count < sends.size(); ++count) {
    const ssize_t error = sends[count].inlined ? copy_out(sends[count]) : post(sends[count]);
    if (error == -FI_EAGAIN) break;
    if (error != 0) return failed(ErrorKind::disconnected, "cannot send", error);
  }
  return count;
}

// Nobody hears of it any more.
ssize_t OfiConnection::copy_out(const rdma::Send& send) {
  std::array<std::byte, copied_room> room;
  return fi_injectdata(endpoint_.get(), in_one_piece(send, room), send.size, send.tag, 0);
}

ssize_t OfiConnection::post(const rdma::Send& send) {
  Pieces pieces(*domain_, send.extents);
  const fi_msg message{.msg_iov = pieces.vectors.data(),
                       .desc = pieces.descriptions.data(),
                       .iov_count = pieces.count,
                       .addr = 0,
                       .context = send.operation,
                       .data = send.tag};
  return fi_sendmsg(endpoint_.get(), &message, FI_REMOTE_CQ_DATA);
}

Result<> OfiConnection::reach(const memory::Arena& arena) {
  FANIN_TRY(domain_->description(arena));
  return {};
}

void OfiConnection::close() {
  if (endpoint_) (void)fi_shutdown(endpoint_.get(), 0);
  endpoint_.reset();
}

// --- the provider ---

Result<> OfiProvider::check(const Url& url) const {
  return check_options(url, EndpointKind::connected);
}

Result<std::unique_ptr<rdma::Listening>> OfiProvider::listen(const Url& url, ListenerId id,
                                                             const memory::PagePool& receive_pool) {
  auto info = FANIN_TRY(find_endpoint(name_, url, true));
  const auto domain = FANIN_TRY(domains_.domain_of(*info));
  if (receive_pool.arena() != nullptr) { // what may be locked shows now, and not with a peer
    FANIN_TRY(domain->description(*receive_pool.arena()));
  }
  Fabric& fabric = domain->fabric();
  auto listening = std::make_unique<OfiListening>(listening_);
  fid_pep* endpoint = nullptr;
  long error = fi_passive_ep(fabric.fabric.get(), info.get(), &endpoint, listening.get());
  listening->endpoint.reset(error == 0 ? endpoint : nullptr);
  if (error == 0) error = fi_pep_bind(endpoint, &fabric.events->fid, 0);
  if (error == 0) error = fi_listen(endpoint);
  std::array<std::byte, 128> address{};
  std::size_t size = address.size();
  if (error == 0) error = fi_getname(&endpoint->fid, address.data(), &size);
  if (error != 0) {
    return fail(
        ErrorKind::refused,
        fmt::format("{}: {}{}", url.text(), error_text(error),
                    is_taken(error) ? "; choose another port, or none for any that is free" : ""));
  }
  listening->id = id;
  listening->url = url;
  put_address(listening->url, address.data(), size);
  close_on_exec(listening->url.port);
  return listening;
}

Result<std::unique_ptr<rdma::Endpoint>> OfiProvider::connect(const Url& url,
                                                             std::span<const Address> addresses) {
  Url there = url;
  there.host = addresses.front().host(); // the provider would look up a name, and wait
  auto info = FANIN_TRY(find_endpoint(name_, there, false));
  auto connection = std::make_unique<OfiConnection>(*this, std::move(info), nullptr);
  connection->peer = url.text();
  return connection;
}

std::size_t OfiProvider::completions(std::span<Completion> to) {
  std::size_t count = 0;
  for (const auto& domain : domains_.all()) {
    for (const auto& queue : domain->all_completions()) {
      count += read<fi_cq_data_entry>(*queue, to.subspan(count), tag_of);
      if (count == to.size()) return count;
    }
  }
  return count;
}

// --- events ---

bool OfiProvider::next_event(ProviderEvent& event) {
  if (std::ranges::any_of(domains_.fabrics(),
                          [&](const auto& fabric) { return next_event(*fabric, event); }))
    return true;
  waited_ = false;
  if (std::exchange(accepted_, false)) {
    for (const OfiListening* const listening : listening_) close_on_exec(listening->url.port);
  }
  return false;
}

// The tcp provider does a little with each read: it accepts one connection, of which there is no
// event before its request has been read. A loop that never sleeps looks here seldom, so where
// somebody may connect it reads a few times if there is work. A loop that sleeps is woken again at
// once, and needs no further system calls.
bool OfiProvider::next_event(Fabric& fabric, ProviderEvent& event) {
  int idle_reads = 0;
  alignas(fi_eq_cm_entry) std::array<std::byte, sizeof(fi_eq_cm_entry) + private_data_most> room;
  for (;;) {
    std::uint32_t kind = 0;
    forget_errno();
    const ssize_t got = fi_eq_read(fabric.events.get(), &kind, room.data(), room.size(), 0);
    if (got == -FI_EAVAIL) {
      take_error(fabric, event);
      if (event.endpoint == nullptr) continue;
      return true;
    }
    if (got < static_cast<ssize_t>(sizeof(fi_eq_cm_entry))) {
      if (waited_ || listening_.empty() || ++idle_reads == idle_reads_most || !fabric.has_work())
        return false;
      continue;
    }
    const auto& entry = *reinterpret_cast<const fi_eq_cm_entry*>(room.data());
    event.hello = hello_in(
        std::span(room).subspan(sizeof entry, static_cast<std::size_t>(got) - sizeof entry));
    if (kind == FI_CONNREQ) {
      if (take_request(entry, event)) return true;
      continue;
    }
    if (kind != FI_CONNECTED && kind != FI_SHUTDOWN) continue;
    event.kind = kind == FI_CONNECTED ? ProviderEvent::Kind::connected : ProviderEvent::Kind::gone;
    event.endpoint = static_cast<OfiConnection*>(entry.fid->context);
    return true;
  }
}

void OfiProvider::take_error(Fabric& fabric, ProviderEvent& event) {
  std::array<std::byte, private_data_most> data{};
  fi_eq_err_entry error{};
  error.err_data = data.data();
  error.err_data_size = data.size();
  if (fi_eq_readerr(fabric.events.get(), &error, 0) < 0) return;
  if (error.fid == nullptr || error.fid->fclass != FI_CLASS_EP) return;
  event.kind = ProviderEvent::Kind::refused;
  event.endpoint = static_cast<OfiConnection*>(error.fid->context);
  if (error.err_data != nullptr)
    event.hello = hello_in(std::span(data).first(std::min(error.err_data_size, data.size())));
  event.text = error_text(error.err);
}

bool OfiProvider::take_request(const fi_eq_cm_entry& entry, ProviderEvent& event) {
  Info info(entry.info);
  // A request may outlive its listener: its memory is looked at only while it is there.
  const auto found = std::ranges::find_if(
      listening_, [&](const OfiListening* one) { return &one->endpoint->fid == entry.fid; });
  if (found == listening_.end()) return false;
  const OfiListening& listening = **found;
  Url peer{.scheme = scheme(), .host = "", .port = 0, .options = {}};
  if (info->dest_addr != nullptr) put_address(peer, info->dest_addr, info->dest_addrlen);
  event.kind = ProviderEvent::Kind::request;
  event.listener = listening.id;
  event.request = std::make_unique<OfiConnection>(*this, std::move(info), listening.endpoint.get());
  event.request->peer = peer.text();
  accepted_ = true;
  return true;
}

} // namespace

Result<std::unique_ptr<rdma::Provider>> make_provider(Loop& loop, std::string_view provider) {
  const auto kind = FANIN_TRY(check_provider(provider));
  Descriptor epoll(epoll_create1(EPOLL_CLOEXEC));
  if (!epoll) return fail_errno(ErrorKind::exhausted, "ofi transport: epoll", errno);
  if (kind == EndpointKind::connected) {
    return std::make_unique<OfiProvider>(provider, std::move(epoll),
                                         loop.policy() == WaitPolicy::poll);
  }
  Descriptor sockets(epoll_create1(EPOLL_CLOEXEC));
  epoll_event event{.events = EPOLLIN, .data = {}};
  if (!sockets || epoll_ctl(epoll.get(), EPOLL_CTL_ADD, sockets.get(), &event) != 0)
    return fail_errno(ErrorKind::exhausted, "ofi transport: epoll", errno);
  return std::make_unique<RdmProvider>(loop, provider, std::move(epoll), std::move(sockets));
}

} // namespace fanin::net::ofi
