#include "fanin/net/ofi/ofi.hpp"

#include <sys/epoll.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "fanin/base/descriptor.hpp"
#include "fanin/net/ofi/fabric.hpp"
#include "fanin/net/posted/pages.hpp"

namespace fanin::net::ofi {
namespace {

using posted::Completion;
using posted::HelloBytes;
using posted::LinkEvent;
using posted::Operation;

constexpr std::uint32_t operations_each = posted::receives_most + posted::sends_most;
constexpr std::size_t copied_room = 512; // bytes of a message that the provider copies
constexpr std::size_t private_data_most = 256;
constexpr int reads_most = 64; // completions at once

static_assert(sizeof(Operation::of_network) >= sizeof(fi_context2));

bool is_taken(long error) { return error == -FI_EADDRINUSE || error == -FI_EBUSY; }

HelloBytes hello_in(std::span<const std::byte> data) {
  HelloBytes hello{};
  std::ranges::copy(data.first(std::min(data.size(), hello.size())), hello.begin());
  return hello;
}

std::unexpected<Error> failed(ErrorKind kind, std::string_view what, long error) {
  return fail(kind, fmt::format("{}: {}", what, error_text(error)));
}

struct OfiListening final : posted::Listening {
  Owned<fid_pep> endpoint;
  ListenerId id = ListenerId::none;
};

class OfiNetwork final : public posted::Network {
public:
  OfiNetwork(std::string_view provider, Descriptor epoll)
      : provider_(provider), epoll_(std::move(epoll)) {}

  [[nodiscard]] std::string scheme() const override { return "ofi+" + provider_; }
  [[nodiscard]] Result<> check(const Url& url) const override;
  [[nodiscard]] Result<std::unique_ptr<posted::Listening>>
  listen(const Url& url, ListenerId id, const memory::PagePool& receive_pool) override;
  [[nodiscard]] Result<std::unique_ptr<posted::Link>> connect(const Url& url) override;
  [[nodiscard]] std::size_t completions(std::span<Completion> to) override;
  [[nodiscard]] bool next_event(LinkEvent& event) override;
  [[nodiscard]] bool arm() override;
  [[nodiscard]] int descriptor() const override { return epoll_.get(); }

  [[nodiscard]] Result<> watch(int descriptor) const;
  [[nodiscard]] Result<Fabric*> fabric_of(const fi_info& info);
  [[nodiscard]] Result<Domain*> domain_of(fi_info& info);

private:
  [[nodiscard]] bool next_event(Fabric& fabric, LinkEvent& event);
  static void take_error(Fabric& fabric, LinkEvent& event);
  void take_request(const fi_eq_cm_entry& entry, LinkEvent& event);
  [[nodiscard]] static std::size_t read(Completions& queue, std::span<Completion> to);

  std::string provider_;
  Descriptor epoll_;
  std::vector<std::unique_ptr<Fabric>> fabrics_;
  std::vector<std::unique_ptr<Domain>> domains_;
};

class OfiLink final : public posted::Link {
public:
  OfiLink(OfiNetwork& network, Info info, fid_pep* asked)
      : network_(network), info_(std::move(info)), asked_(asked) {}
  ~OfiLink() override {
    if (completions_ != nullptr) completions_->room += operations_each;
  }

  [[nodiscard]] Result<Limits> open(const memory::PagePool& receive_pool) override;
  [[nodiscard]] Result<> start(const HelloBytes& hello) override;
  void reject(const HelloBytes& hello) override {
    (void)fi_reject(asked_, info_->handle, hello.data(), hello.size());
  }
  [[nodiscard]] Result<> post_receives(std::span<const posted::Receive> receives,
                                       std::uint32_t size) override;
  [[nodiscard]] Result<std::size_t> post_sends(std::span<const posted::Send> sends) override;
  [[nodiscard]] Result<> reach(const memory::Arena& arena) override;
  void close() override;

private:
  [[nodiscard]] ssize_t copy_out(const posted::Send& send);
  [[nodiscard]] ssize_t post(const posted::Send& send);

  OfiNetwork& network_;
  Info info_; // until it is started
  fid_pep* asked_; // where it is a request
  Domain* domain_ = nullptr;
  Completions* completions_ = nullptr;
  void* receive_description_ = nullptr; // of the receive pool's memory
  Owned<fid_ep> endpoint_;
};

// --- links ---

Result<posted::Link::Limits> OfiLink::open(const memory::PagePool& receive_pool) {
  const auto domain = network_.domain_of(*info_);
  if (!domain) return std::unexpected(domain.error());
  domain_ = *domain;
  bool is_new = false;
  const auto completions = domain_->completions(operations_each, is_new);
  if (!completions) return std::unexpected(completions.error());
  if (is_new) {
    if (auto watched = network_.watch((*completions)->descriptor); !watched)
      return std::unexpected(watched.error());
  }
  completions_ = *completions;
  completions_->room -= operations_each;
  if (const memory::Arena* const arena = receive_pool.arena(); arena != nullptr) {
    const auto known = domain_->description(*arena);
    if (!known) return std::unexpected(known.error());
    receive_description_ = *known;
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
                            network_.scheme(), error_text(error)));
  }
  return Limits{.receives = static_cast<std::uint32_t>(
                    std::min<std::size_t>(posted::receives_most, info_->rx_attr->size)),
                .copied_most =
                    static_cast<std::uint32_t>(std::min(info_->tx_attr->inject_size, copied_room)),
                .pieces_most = info_->tx_attr->iov_limit,
                .reads_anything = !domain_->needs_registration()};
}

Result<> OfiLink::start(const HelloBytes& hello) {
  const long error = asked_ == nullptr
                         ? fi_connect(endpoint_.get(), info_->dest_addr, hello.data(), hello.size())
                         : fi_accept(endpoint_.get(), hello.data(), hello.size());
  info_.reset();
  if (error == 0) return {};
  return failed(ErrorKind::refused, "it cannot be connected", error);
}

Result<> OfiLink::post_receives(std::span<const posted::Receive> receives, std::uint32_t size) {
  for (const posted::Receive& receive : receives) {
    const ssize_t error =
        fi_recv(endpoint_.get(), receive.to, size, receive_description_, 0, receive.operation);
    if (error != 0) return failed(ErrorKind::internal, "cannot post a receive", error);
  }
  return {};
}

Result<std::size_t> OfiLink::post_sends(std::span<const posted::Send> sends) {
  std::size_t count = 0;
  for (; count < sends.size(); ++count) {
    const ssize_t error = sends[count].copied ? copy_out(sends[count]) : post(sends[count]);
    if (error == -FI_EAGAIN) break;
    if (error != 0) return failed(ErrorKind::disconnected, "cannot send", error);
  }
  return count;
}

// Nobody hears of it any more.
ssize_t OfiLink::copy_out(const posted::Send& send) {
  std::array<std::byte, copied_room> room;
  const std::byte* bytes = room.data();
  if (send.extents.size() == 1) {
    bytes = send.extents.front().data();
  } else {
    std::byte* to = room.data();
    for (const memory::View& extent : send.extents) {
      std::memcpy(to, extent.data(), extent.size);
      to += extent.size;
    }
  }
  return fi_injectdata(endpoint_.get(), bytes, send.size, send.tag, 0);
}

ssize_t OfiLink::post(const posted::Send& send) {
  std::array<iovec, max_extents> pieces;
  std::array<void*, max_extents> descriptions{};
  for (std::size_t i = 0; i < send.extents.size(); ++i) {
    const memory::View& extent = send.extents[i];
    pieces[i] = {const_cast<std::byte*>(extent.data()), extent.size};
    if (domain_->needs_registration())
      descriptions[i] = domain_->description(*extent.page.get()->home->arena()).value();
  }
  const fi_msg message{.msg_iov = pieces.data(),
                       .desc = descriptions.data(),
                       .iov_count = send.extents.size(),
                       .addr = 0,
                       .context = send.operation,
                       .data = send.tag};
  return fi_sendmsg(endpoint_.get(), &message, FI_REMOTE_CQ_DATA);
}

Result<> OfiLink::reach(const memory::Arena& arena) {
  if (const auto known = domain_->description(arena); !known) return std::unexpected(known.error());
  return {};
}

void OfiLink::close() {
  if (endpoint_) (void)fi_shutdown(endpoint_.get(), 0);
  endpoint_.reset();
}

// --- the network ---

Result<> OfiNetwork::check(const Url& url) const {
  for (const auto& [name, value] : url.options) {
    if (name == posted::pages_option) continue;
    return fail(ErrorKind::usage, fmt::format("{}: option \"{}\" is not known; {}:// has "
                                              "posted=N, the pages of the receive pool that a "
                                              "connection keeps posted",
                                              url.text(), name, url.scheme));
  }
  return {};
}

Result<> OfiNetwork::watch(int descriptor) const {
  epoll_event event{.events = EPOLLIN, .data = {}};
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, descriptor, &event) == 0) return {};
  return fail_errno(ErrorKind::exhausted, "epoll", errno);
}

Result<Fabric*> OfiNetwork::fabric_of(const fi_info& info) {
  for (const auto& known : fabrics_) {
    if (known->name == info.fabric_attr->name) return known.get();
  }
  auto made = Fabric::open(info);
  if (!made) return std::unexpected(made.error());
  if (auto watched = watch((*made)->descriptor); !watched) return std::unexpected(watched.error());
  return fabrics_.emplace_back(std::move(*made)).get();
}

Result<Domain*> OfiNetwork::domain_of(fi_info& info) {
  const auto fabric = fabric_of(info);
  if (!fabric) return std::unexpected(fabric.error());
  for (const auto& known : domains_) {
    if (known->is_of(**fabric, info)) return known.get();
  }
  auto made = Domain::open(**fabric, info);
  if (!made) return std::unexpected(made.error());
  return domains_.emplace_back(std::move(*made)).get();
}

Result<std::unique_ptr<posted::Listening>>
OfiNetwork::listen(const Url& url, ListenerId id, const memory::PagePool& receive_pool) {
  auto info = find_endpoint(provider_, url, true);
  if (!info) return std::unexpected(info.error());
  const auto domain = domain_of(**info);
  if (!domain) return std::unexpected(domain.error());
  if (receive_pool.arena() != nullptr) { // what may be locked shows now, and not with a peer
    if (const auto known = (*domain)->description(*receive_pool.arena()); !known)
      return std::unexpected(known.error());
  }
  Fabric& fabric = (*domain)->fabric();
  auto listening = std::make_unique<OfiListening>();
  fid_pep* endpoint = nullptr;
  long error = fi_passive_ep(fabric.fabric.get(), info->get(), &endpoint, listening.get());
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
  return listening;
}

Result<std::unique_ptr<posted::Link>> OfiNetwork::connect(const Url& url) {
  auto info = find_endpoint(provider_, url, false);
  if (!info) return std::unexpected(info.error());
  auto link = std::make_unique<OfiLink>(*this, std::move(*info), nullptr);
  link->peer = url.text();
  return link;
}

std::size_t OfiNetwork::completions(std::span<Completion> to) {
  std::size_t count = 0;
  for (const auto& domain : domains_) {
    for (const auto& queue : domain->all_completions()) {
      count += read(*queue, to.subspan(count));
      if (count == to.size()) return count;
    }
  }
  return count;
}

std::size_t OfiNetwork::read(Completions& queue, std::span<Completion> to) {
  std::array<fi_cq_data_entry, reads_most> entries;
  std::size_t count = 0;
  while (count < to.size()) {
    const std::size_t asked = std::min(entries.size(), to.size() - count);
    const ssize_t got = fi_cq_read(queue.queue.get(), entries.data(), asked);
    if (got <= 0 && got != -FI_EAVAIL) break;
    const auto taken = static_cast<std::size_t>(std::max<ssize_t>(got, 0));
    for (const fi_cq_data_entry& entry : std::span(entries).first(taken)) {
      to[count++] = {.operation = static_cast<Operation*>(entry.op_context),
                     .tag =
                         (entry.flags & FI_REMOTE_CQ_DATA) != 0 ? entry.data : Completion::no_tag,
                     .size = static_cast<std::uint32_t>(entry.len)};
    }
    if (taken == asked) continue;
    // The queue is empty, or an error stands in the way. To read again to find out would cost
    // system calls while the peer waits for an answer.
    fi_cq_err_entry error{};
    if (fi_cq_readerr(queue.queue.get(), &error, 0) <= 0) break;
    if (error.op_context == nullptr) continue;
    const bool too_large = error.err == FI_ETRUNC || error.err == FI_EMSGSIZE;
    const auto status = error.err == FI_ECANCELED ? Completion::Status::canceled
                        : too_large               ? Completion::Status::too_large
                                                  : Completion::Status::failed;
    to[count++] = {.operation = static_cast<Operation*>(error.op_context),
                   .status = status,
                   .text = fi_strerror(error.err)};
  }
  return count;
}

bool OfiNetwork::arm() {
  for (const auto& fabric : fabrics_) {
    std::vector<fid*>& waited_for = fabric->waited_for;
    waited_for.assign(1, &fabric->events->fid);
    for (const auto& domain : domains_) {
      if (&domain->fabric() != fabric.get()) continue;
      for (const auto& known : domain->all_completions()) waited_for.push_back(&known->queue->fid);
    }
    if (fi_trywait(fabric->fabric.get(), waited_for.data(), static_cast<int>(waited_for.size())) !=
        FI_SUCCESS)
      return false;
  }
  return true;
}

// --- events ---

bool OfiNetwork::next_event(LinkEvent& event) {
  return std::ranges::any_of(fabrics_,
                             [&](const auto& fabric) { return next_event(*fabric, event); });
}

bool OfiNetwork::next_event(Fabric& fabric, LinkEvent& event) {
  alignas(fi_eq_cm_entry) std::array<std::byte, sizeof(fi_eq_cm_entry) + private_data_most> room;
  for (;;) {
    std::uint32_t kind = 0;
    const ssize_t got = fi_eq_read(fabric.events.get(), &kind, room.data(), room.size(), 0);
    if (got == -FI_EAVAIL) {
      take_error(fabric, event);
      if (event.link == nullptr) continue;
      return true;
    }
    if (got < static_cast<ssize_t>(sizeof(fi_eq_cm_entry))) return false;
    const auto& entry = *reinterpret_cast<const fi_eq_cm_entry*>(room.data());
    event.hello = hello_in(
        std::span(room).subspan(sizeof entry, static_cast<std::size_t>(got) - sizeof entry));
    if (kind == FI_CONNREQ) {
      take_request(entry, event);
      return true;
    }
    if (kind != FI_CONNECTED && kind != FI_SHUTDOWN) continue;
    event.kind = kind == FI_CONNECTED ? LinkEvent::Kind::connected : LinkEvent::Kind::gone;
    event.link = static_cast<OfiLink*>(entry.fid->context);
    return true;
  }
}

void OfiNetwork::take_error(Fabric& fabric, LinkEvent& event) {
  std::array<std::byte, private_data_most> data{};
  fi_eq_err_entry error{};
  error.err_data = data.data();
  error.err_data_size = data.size();
  if (fi_eq_readerr(fabric.events.get(), &error, 0) < 0) return;
  if (error.fid == nullptr || error.fid->fclass != FI_CLASS_EP) return;
  event.kind = LinkEvent::Kind::refused;
  event.link = static_cast<OfiLink*>(error.fid->context);
  if (error.err_data != nullptr)
    event.hello = hello_in(std::span(data).first(std::min(error.err_data_size, data.size())));
  event.text = error_text(error.err);
}

void OfiNetwork::take_request(const fi_eq_cm_entry& entry, LinkEvent& event) {
  const auto& listening = *static_cast<const OfiListening*>(entry.fid->context);
  Info info(entry.info);
  Url peer{.scheme = scheme(), .host = "", .port = 0, .options = {}};
  if (info->dest_addr != nullptr) put_address(peer, info->dest_addr, info->dest_addrlen);
  event.kind = LinkEvent::Kind::request;
  event.listener = listening.id;
  event.request = std::make_unique<OfiLink>(*this, std::move(info), listening.endpoint.get());
  event.request->peer = peer.text();
}

} // namespace

Result<std::unique_ptr<posted::Network>> make_network(std::string_view provider) {
  if (auto checked = check_provider(provider); !checked) return std::unexpected(checked.error());
  Descriptor epoll(epoll_create1(EPOLL_CLOEXEC));
  if (!epoll) return fail_errno(ErrorKind::exhausted, "ofi transport: epoll", errno);
  return std::make_unique<OfiNetwork>(provider, std::move(epoll));
}

} // namespace fanin::net::ofi
