#include "fanin/net/verbs/verbs.hpp"

#include <arpa/inet.h>
#include <fcntl.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "fanin/base/descriptor.hpp"
#include "fanin/base/try.hpp"
#include "fanin/net/own_addresses.hpp"
#include "fanin/net/verbs/endpoint.hpp"
#include "fanin/net/verbs/queue_pair.hpp"

namespace fanin::net::verbs {
namespace {

using rdma::Completion;
using rdma::Operation;
using rdma::ProviderEvent;

constexpr int backlog = 128;
constexpr int resolve_timeout_ms = 2000;
constexpr std::size_t reads_most = 64; // completions at once
constexpr std::string_view remedy =
    "load the driver of the network card (`ibv_devices` lists what is there), or for tests "
    "rdma_rxe: modprobe rdma_rxe && rdma link add rxe0 type rxe netdev eth0";

// A file of RDMA that is there, and that this user may not use; empty: there is none.
std::string forbidden_file() {
  std::error_code error;
  for (std::filesystem::directory_iterator file("/dev/infiniband", error), end;
       !error && file != end; file.increment(error)) {
    const std::string name = file->path().filename();
    if ((name == "rdma_cm" || name.starts_with("uverbs")) &&
        faccessat(AT_FDCWD, file->path().c_str(), R_OK | W_OK, AT_EACCESS) != 0)
      return file->path();
  }
  return "";
}

std::unexpected<Error> unusable(std::string_view why) {
  const std::string file = forbidden_file();
  return fail(ErrorKind::unsupported,
              file.empty() ? fmt::format("verbs://: {}", why)
                           : fmt::format("verbs://: this user may not use {}: chmod 666, or a udev "
                                         "rule as that of Debian's rdma-core",
                                         file));
}

Result<CmId> make_id(rdma_event_channel* channel) {
  rdma_cm_id* id = nullptr;
  if (rdma_create_id(channel, &id, nullptr, RDMA_PS_TCP) != 0)
    return fail_errno(ErrorKind::exhausted, "RDMA connection manager", errno);
  return CmId(id);
}

// The address is only read; the interface does not say so.
sockaddr* mutable_address(const Address& address) { return const_cast<sockaddr*>(address.get()); }

std::string name_of(const sockaddr* address) {
  Address copy;
  copy.length = address->sa_family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
  std::memcpy(&copy.storage, address, copy.length);
  return Url{.scheme = "verbs", .host = copy.host(), .port = copy.port(), .options = {}}.text();
}

// The first address of this host that an RDMA device has. Empty: there is none.
std::string first_address(rdma_event_channel* channel) {
  for (const auto& [interface, address] : own_addresses()) {
    if (address.get()->sa_family != AF_INET || is_loopback(address.host())) continue;
    const auto id = make_id(channel);
    if (id && rdma_bind_addr(id->get(), mutable_address(address)) == 0 && (*id)->verbs != nullptr)
      return address.host();
  }
  return "";
}

std::string no_route(int error) {
  return fmt::format(
      "no RDMA device reaches this address ({}); `rdma link` and `ip address` show the devices",
      std::strerror(error));
}

std::unexpected<Error> no_device_there(const Url& url) {
  return fail(ErrorKind::refused, fmt::format("{}: not an address of an RDMA device of this host; "
                                              "`rdma link` and `ip address` show the devices",
                                              url.text()));
}

std::unexpected<Error> cannot_listen(const Url& url, int error) {
  if (error == ENODEV || error == EADDRNOTAVAIL) return no_device_there(url);
  if (error != EADDRINUSE)
    return fail_errno(ErrorKind::refused, fmt::format("{}: listen", url.text()), error);
  return fail(
      ErrorKind::refused,
      fmt::format("{}: the port is in use; `rdma resource show cm_id` shows by whom. Choose "
                  "another one, or none for any that is free",
                  url.text()));
}

struct VerbsListening final : rdma::Listening {
  ListenerId id = ListenerId::none;
  PathOptions path;
  CmId cm_id;
};

class VerbsProvider final : public rdma::Provider {
public:
  VerbsProvider(EventChannel channel, Descriptor epoll)
      : channel_(std::move(channel)), epoll_(std::move(epoll)) {}

  [[nodiscard]] std::string scheme() const override { return "verbs"; }
  [[nodiscard]] Result<> check(const Url& url) const override {
    FANIN_TRY(parse_path_options(url));
    return {};
  }
  [[nodiscard]] Result<std::unique_ptr<rdma::Listening>>
  listen(const Url& url, ListenerId id, const memory::PagePool& receive_pool) override;
  [[nodiscard]] Result<std::unique_ptr<rdma::Endpoint>>
  connect(const Url& url, std::span<const Address> addresses) override;
  [[nodiscard]] std::size_t completions(std::span<Completion> to) override;
  [[nodiscard]] bool next_event(ProviderEvent& event) override;
  [[nodiscard]] bool arm() override;
  [[nodiscard]] int descriptor() const override { return epoll_.get(); }

private:
  [[nodiscard]] Result<Device*> device_of(ibv_context* context);
  [[nodiscard]] FindDevice finder() {
    return [this](ibv_context* context) { return device_of(context); };
  }
  [[nodiscard]] Result<std::pair<Url, Address>> resolve(const Url& url, bool to_listen) const;
  [[nodiscard]] bool translate(const rdma_cm_event& cm_event, ProviderEvent& event);

  EventChannel channel_;
  Descriptor epoll_;
  std::vector<std::unique_ptr<Device>> devices_;
};

Result<Device*> VerbsProvider::device_of(ibv_context* context) {
  for (const auto& device : devices_) {
    if (device->context() == context) return device.get();
  }
  auto made = FANIN_TRY(Device::make(context));
  epoll_event readable{.events = EPOLLIN, .data = {}};
  for (const int descriptor : {made->channel_descriptor(), context->async_fd}) {
    if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, descriptor, &readable) != 0)
      return fail_errno(ErrorKind::exhausted, "verbs://: epoll", errno);
  }
  return devices_.emplace_back(std::move(made)).get();
}

Result<std::pair<Url, Address>> VerbsProvider::resolve(const Url& url, bool to_listen) const {
  Url real = url;
  if (real.host.empty()) real.host = first_address(channel_.get());
  const auto addresses = FANIN_TRY(net::resolve(real, to_listen));
  return std::pair{std::move(real), addresses.front()};
}

Result<std::unique_ptr<rdma::Listening>>
VerbsProvider::listen(const Url& url, ListenerId id, const memory::PagePool& receive_pool) {
  auto real = FANIN_TRY(resolve(url, true));
  const auto& [there, address] = real;
  auto cm_id = FANIN_TRY(make_id(channel_.get()));
  if (rdma_bind_addr(cm_id.get(), mutable_address(address)) != 0 ||
      rdma_listen(cm_id.get(), backlog) != 0)
    return cannot_listen(there, errno);
  if (cm_id->verbs == nullptr && address.host() == "127.0.0.1") return no_device_there(there);
  if (cm_id->verbs != nullptr) { // what it may lock shows now, and not with the first peer
    if (auto possible = check_path(*parse_path_options(url), *cm_id); !possible)
      return fail(possible.error().kind,
                  fmt::format("{}: {}", there.text(), possible.error().text));
    const auto device = FANIN_TRY(device_of(cm_id->verbs));
    FANIN_TRY(device->key(*receive_pool.arena()));
  }
  auto listening = std::make_unique<VerbsListening>();
  listening->url = there;
  listening->url.port = ntohs(rdma_get_src_port(cm_id.get()));
  listening->id = id;
  listening->path = *parse_path_options(url);
  listening->cm_id = std::move(cm_id);
  listening->cm_id->context = listening.get();
  return listening;
}

Result<std::unique_ptr<rdma::Endpoint>> VerbsProvider::connect(const Url& url,
                                                               std::span<const Address> addresses) {
  Address address = addresses.front();
  if (url.host.empty()) {
    const auto own = FANIN_TRY(resolve(url, false));
    address = own.second;
  }
  auto cm_id = FANIN_TRY(make_id(channel_.get()));
  auto endpoint =
      std::make_unique<VerbsEndpoint>(finder(), std::move(cm_id), *parse_path_options(url), false);
  endpoint->peer = url.host.empty() ? name_of(address.get()) : url.text();
  if (rdma_resolve_addr(endpoint->id(), nullptr, mutable_address(address), resolve_timeout_ms) != 0)
    endpoint->has_no_route(no_route(errno));
  return endpoint;
}

// --- completions ---

Completion translate(const Device& device, const ibv_wc& completion, bool of_receive) {
  Completion result{.operation = reinterpret_cast<Operation*>(completion.wr_id)};
  if (result.operation->shared != nullptr) result.endpoint = device.endpoint_of(completion.qp_num);
  switch (completion.status) {
  case IBV_WC_SUCCESS:
    if (of_receive) {
      result.size = completion.byte_len;
      if ((completion.wc_flags & IBV_WC_WITH_IMM) != 0) result.tag = ntohl(completion.imm_data);
    } else {
      static_cast<VerbsEndpoint*>(result.operation->endpoint)->retire();
    }
    return result;
  case IBV_WC_WR_FLUSH_ERR: result.status = Completion::Status::canceled; return result;
  case IBV_WC_LOC_LEN_ERR: result.status = Completion::Status::too_large; return result;
  default: break;
  }
  // SoftRoCE's word for a receive that is too small.
  const bool too_large = of_receive && completion.status == IBV_WC_LOC_QP_OP_ERR;
  result.status = too_large ? Completion::Status::too_large : Completion::Status::failed;
  result.text = ibv_wc_status_str(completion.status);
  return result;
}

std::size_t read(const Device& device, bool of_receives, std::span<Completion> to) {
  ibv_cq* const queue = (of_receives ? device.receives : device.sends).get();
  std::array<ibv_wc, reads_most> taken;
  std::size_t count = 0;
  while (count < to.size()) {
    const int got = ibv_poll_cq(queue, static_cast<int>(std::min(taken.size(), to.size() - count)),
                                taken.data());
    if (got <= 0) break;
    for (const ibv_wc& completion : std::span(taken).first(static_cast<std::size_t>(got)))
      to[count++] = translate(device, completion, of_receives);
  }
  return count;
}

// What has failed to be sent is known before what has come: so that is all that had come before.
std::size_t VerbsProvider::completions(std::span<Completion> to) {
  std::size_t count = 0;
  for (const auto& device : devices_) {
    count += read(*device, false, to.subspan(count));
    count += read(*device, true, to.subspan(count));
  }
  return count;
}

bool VerbsProvider::arm() {
  bool armed = true;
  for (const auto& device : devices_) {
    armed = device->sends.arm() && armed;
    armed = device->receives.arm() && armed;
  }
  return armed;
}

// --- events ---

bool VerbsProvider::next_event(ProviderEvent& event) {
  rdma_cm_event* taken = nullptr;
  while (rdma_get_cm_event(channel_.get(), &taken) == 0) {
    event.hello = {};
    const rdma_conn_param& said = taken->param.conn;
    if (said.private_data != nullptr) {
      std::memcpy(event.hello.data(), said.private_data,
                  std::min<std::size_t>(said.private_data_len, event.hello.size()));
    }
    const rdma_cm_event copy = *taken;
    (void)rdma_ack_cm_event(taken); // before its id may end
    if (translate(copy, event)) return true;
  }
  for (const auto& device : devices_) {
    device->take_channel_events();
    while (auto happened = device->take_async_event()) {
      if (happened->done_with_shared != nullptr) happened->done_with_shared->last_receive_taken();
      event.text = std::move(happened->text);
      if (!event.text.empty()) return true;
    }
  }
  return false;
}

// False: it is of no interest.
bool VerbsProvider::translate(const rdma_cm_event& cm_event, ProviderEvent& event) {
  using Kind = ProviderEvent::Kind;
  if (cm_event.event == RDMA_CM_EVENT_CONNECT_REQUEST) {
    const auto& listening = *static_cast<const VerbsListening*>(cm_event.listen_id->context);
    event.kind = Kind::request;
    event.listener = listening.id;
    event.request =
        std::make_unique<VerbsEndpoint>(finder(), CmId(cm_event.id), listening.path, true);
    event.request->peer = name_of(rdma_get_peer_addr(cm_event.id));
    return true;
  }
  auto& endpoint = *static_cast<VerbsEndpoint*>(cm_event.id->context);
  const auto becomes = [&](Kind kind, const Result<>& done) {
    event.endpoint = &endpoint;
    event.kind = done ? kind : Kind::refused;
    if (!done) event.text = done.error().text;
    return true;
  };
  const auto refused = [&](std::string why) {
    return becomes(Kind::refused, fail(ErrorKind::refused, std::move(why)));
  };
  switch (cm_event.event) {
  case RDMA_CM_EVENT_ADDR_RESOLVED:
    if (rdma_resolve_route(cm_event.id, resolve_timeout_ms) == 0) return false;
    return refused(no_route(errno));
  case RDMA_CM_EVENT_ROUTE_RESOLVED: endpoint.route_found(); return becomes(Kind::ready, {});
  case RDMA_CM_EVENT_CONNECT_RESPONSE: return becomes(Kind::connected, endpoint.answered());
  case RDMA_CM_EVENT_ESTABLISHED: return becomes(Kind::connected, {});
  case RDMA_CM_EVENT_ADDR_ERROR:
  case RDMA_CM_EVENT_ROUTE_ERROR: return refused(no_route(-cm_event.status));
  case RDMA_CM_EVENT_CONNECT_ERROR:
  case RDMA_CM_EVENT_UNREACHABLE:
    return refused(fmt::format("no answer: {}", std::strerror(-cm_event.status)));
  case RDMA_CM_EVENT_REJECTED: return refused("nobody listens there");
  case RDMA_CM_EVENT_DISCONNECTED:
  case RDMA_CM_EVENT_DEVICE_REMOVAL: return becomes(Kind::gone, {});
  default: return false; // ADDR_CHANGE, TIMEWAIT_EXIT, multicast
  }
}

} // namespace

Result<std::unique_ptr<rdma::Provider>> make_provider() {
  EventChannel channel(rdma_create_event_channel());
  if (channel == nullptr) {
    return unusable(fmt::format("no RDMA connection manager ({}): modprobe rdma_ucm, and {}",
                                std::strerror(errno), remedy));
  }
  int count = 0;
  ibv_context** const devices = rdma_get_devices(&count);
  if (devices != nullptr) rdma_free_devices(devices);
  if (count == 0) return unusable(fmt::format("no RDMA device: {}", remedy));
  const int flags = fcntl(channel->fd, F_GETFL);
  Descriptor epoll(epoll_create1(EPOLL_CLOEXEC));
  epoll_event readable{.events = EPOLLIN, .data = {}};
  if (!epoll || flags < 0 || fcntl(channel->fd, F_SETFL, flags | O_NONBLOCK) != 0 ||
      epoll_ctl(epoll.get(), EPOLL_CTL_ADD, channel->fd, &readable) != 0)
    return fail_errno(ErrorKind::exhausted, "verbs://: epoll", errno);
  return std::make_unique<VerbsProvider>(std::move(channel), std::move(epoll));
}

} // namespace fanin::net::verbs
