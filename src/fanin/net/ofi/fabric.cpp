#include "fanin/net/ofi/fabric.hpp"

#include <netinet/in.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>

#include <fmt/format.h>

#include "fanin/base/try.hpp"
#include "fanin/base/units.hpp"
#include "fanin/net/address.hpp"
#include "fanin/net/rdma/pages.hpp"

namespace fanin::net::ofi {
namespace {

// Receives of an endpoint that connections share, as many as the provider gives; last its default.
constexpr std::size_t shared_receives[] = {16384, 8192, 4096, 0};
// A tcp provider asks the kernel once for each queue, so they are few and large; devices have
// limits of 32767 and more.
constexpr std::uint32_t completions_entries = 16384;

constexpr int tag_bits = 48; // as many as cxi has

// "tcp-rxm" is libfabric's "tcp;ofi_rxm", which no URL could hold.
std::string name_of(std::string_view provider) {
  const std::string_view layer = provider.substr(std::min(provider.find('-'), provider.size()));
  if (layer != "-rxm" && layer != "-rxd") return std::string(provider);
  return fmt::format("{};ofi_{}", provider.substr(0, provider.size() - layer.size()),
                     layer.substr(1));
}

Info hints_for(std::string_view provider, EndpointKind kind) {
  Info hints(fi_allocinfo());
  hints->mode = FI_CONTEXT | FI_CONTEXT2;
  hints->domain_attr->threading = FI_THREAD_DOMAIN;
  hints->domain_attr->mr_mode = FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
  if (kind == EndpointKind::connected) {
    hints->ep_attr->type = FI_EP_MSG;
    hints->caps = FI_MSG;
    // Sends complete in order: tcp and verbs do so unasked, and 2.x has nothing to ask for it with.
    hints->mode |= FI_RX_CQ_DATA; // verbs has no data beside a message for who does not know it
    hints->domain_attr->cq_data_size = sizeof(std::uint32_t);
  } else {
    hints->ep_attr->type = FI_EP_RDM;
    hints->caps = FI_TAGGED;
    hints->tx_attr->msg_order = FI_ORDER_SAS;
    hints->rx_attr->msg_order = FI_ORDER_SAS;
    hints->domain_attr->mr_mode |= FI_MR_ENDPOINT; // cxi; of remote keys, and there are none
    hints->domain_attr->resource_mgmt = FI_RM_ENABLED;
  }
  if (!provider.empty()) hints->fabric_attr->prov_name = ::strdup(name_of(provider).c_str());
  return hints;
}

// In 1.17 it crashes when it connects, and it is gone from 2.0 on.
bool is_broken(std::string_view provider) { return provider == "sockets"; }

// What a transport here needs of an endpoint.
bool is_usable(const fi_info& info) {
  if (is_broken(info.fabric_attr->prov_name)) return false;
  if (info.ep_attr->type == FI_EP_MSG)
    return info.domain_attr->cq_data_size >= sizeof(std::uint32_t);
  const std::uint64_t tags = info.ep_attr->mem_tag_format;
  return tags == 0 || tags >> (tag_bits - 1) != 0;
}

int find_any(std::string_view provider, EndpointKind kind, Info& found) {
  fi_info* first = nullptr;
  const Info hints = hints_for(provider, kind);
  const int error = fi_getinfo(api_version, nullptr, nullptr, 0, hints.get(), &first);
  found.reset(error == 0 ? first : nullptr);
  return error;
}

std::string providers_text() {
  std::string text;
  for (const std::string& name : usable_providers()) {
    text += fmt::format("{}ofi+{}", text.empty() ? "" : ", ", name);
  }
  return text.empty() ? "none; `fi_info` shows what libfabric finds" : text;
}

// Both families of addresses have it in the same place.
void set_port(void* address, std::size_t size, std::uint16_t port) {
  static_assert(offsetof(sockaddr_in, sin_port) == offsetof(sockaddr_in6, sin6_port));
  const std::uint16_t in_network_order = htons(port);
  if (address == nullptr || size < sizeof(sockaddr_in)) return;
  std::memcpy(static_cast<std::byte*>(address) + offsetof(sockaddr_in, sin_port), &in_network_order,
              sizeof in_network_order);
}

bool is_readable(int descriptor) {
  pollfd asked{.fd = descriptor, .events = POLLIN, .revents = 0};
  return ::poll(&asked, 1, 0) > 0;
}

std::unexpected<Error> failed(std::string_view what, long error) {
  return fail(ErrorKind::exhausted, fmt::format("libfabric: {}: {}", what, error_text(error)));
}

} // namespace

std::string error_text(long error) {
  return fi_strerror(static_cast<int>(error < 0 ? -error : error));
}

std::vector<std::string> usable_providers() {
  std::vector<std::string> names;
  for (const EndpointKind kind : {EndpointKind::connected, EndpointKind::datagrams}) {
    Info found;
    (void)find_any({}, kind, found);
    for (const fi_info* info = found.get(); info != nullptr; info = info->next) {
      const std::string name = info->fabric_attr->prov_name;
      const bool layered = name.find(';') != name.npos; // over one that is usable itself, or slow
      if (!layered && is_usable(*info) && std::ranges::find(names, name) == names.end())
        names.push_back(name);
    }
  }
  return names;
}

Result<EndpointKind> check_provider(std::string_view provider) {
  for (const EndpointKind kind : {EndpointKind::connected, EndpointKind::datagrams}) {
    Info found;
    if (find_any(provider, kind, found) == 0 && is_usable(*found)) return kind;
  }
  return fail(ErrorKind::unsupported,
              fmt::format("ofi+{}: libfabric {}.{} has no such provider on this host with "
                          "connected endpoints (FI_EP_MSG) or reliable datagrams (FI_EP_RDM) with "
                          "tags; there are: {}",
                          provider, FI_MAJOR(fi_version()), FI_MINOR(fi_version()),
                          providers_text()));
}

Result<> check_options(const Url& url, EndpointKind kind) {
  const bool has_domains = kind == EndpointKind::datagrams;
  for (const auto& [name, value] : url.options) {
    if (name == rdma::pages_option || (has_domains && name == domain_option)) continue;
    return fail(
        ErrorKind::usage,
        fmt::format("{}: option \"{}\" is not known; {}:// has posted=N, the pages of the receive "
                    "pool that a connection keeps posted{}",
                    url.text(), name, url.scheme,
                    has_domains ? ", and domain=NAME, which of the provider's devices" : ""));
  }
  return {};
}

Result<> check_domain(std::string_view provider, const std::string& domain) {
  const Info hints = hints_for(provider, EndpointKind::datagrams);
  hints->domain_attr->name = ::strdup(domain.c_str());
  fi_info* found = nullptr;
  const int error = fi_getinfo(api_version, nullptr, nullptr, 0, hints.get(), &found);
  const Info info(error == 0 ? found : nullptr);
  for (const fi_info* one = info.get(); one != nullptr; one = one->next) {
    if (one->domain_attr->name == domain) return {}; // not every provider looks at the name
  }
  return fail(ErrorKind::not_found,
              fmt::format("ofi+{}: the provider has no device \"{}\" here; `fi_info -p \"{}\" -t "
                          "FI_EP_RDM` shows those that it has",
                          provider, domain, name_of(provider)));
}

Result<Info> find_datagrams(std::string_view provider, const std::string& host, bool here,
                            const std::string& domain) {
  const Info hints = hints_for(provider, EndpointKind::datagrams);
  if (!domain.empty()) hints->domain_attr->name = ::strdup(domain.c_str());
  int error = 0;
  Info info;
  const auto query = [&](const char* from) {
    fi_info* found = nullptr;
    error = fi_getinfo(api_version, from, nullptr, here && from != nullptr ? FI_SOURCE : 0,
                       hints.get(), &found);
    info.reset(error == 0 ? found : nullptr);
  };
  for (const std::size_t receives : shared_receives) {
    if (!has_endpoints_to_spare(provider)) hints->rx_attr->size = receives;
    query(nullptr);
    if (info) break;
  }
  if (info && (info->addr_format == FI_SOCKADDR_IN || info->addr_format == FI_SOCKADDR_IN6 ||
               info->addr_format == FI_SOCKADDR)) {
    query(host.c_str());
  }
  // Not every provider looks at the name.
  const bool right = info && (domain.empty() || info->domain_attr->name == domain);
  if (right && is_usable(*info)) return info;
  return fail(ErrorKind::not_found,
              fmt::format("ofi+{}: the provider has no endpoint{} for \"{}\" ({}); `fi_info -p "
                          "\"{}\" -t FI_EP_RDM` shows those that it has here (shm needs room in "
                          "/dev/shm)",
                          provider, domain.empty() ? "" : fmt::format(" on \"{}\"", domain), host,
                          error_text(error), name_of(provider)));
}

Result<Info> find_endpoint(std::string_view provider, const Url& url, bool listen) {
  const std::string host = url.host.empty() ? "127.0.0.1" : url.host;
  // A port that is in use is seen when listening; verbs would say here that there is no address.
  const std::string port = fmt::format("{}", listen ? 0 : url.port);
  fi_info* found = nullptr;
  const Info hints = hints_for(provider, EndpointKind::connected);
  const int error = fi_getinfo(api_version, host.c_str(), port.c_str(), listen ? FI_SOURCE : 0,
                               hints.get(), &found);
  Info info(found);
  if (error == 0 && is_usable(*found)) {
    if (listen) set_port(info->src_addr, info->src_addrlen, url.port);
    return info;
  }
  return fail(ErrorKind::not_found,
              fmt::format("{}: the provider cannot reach \"{}\" ({}); `fi_info -p {} -t FI_EP_MSG` "
                          "shows its addresses on this host",
                          url.text(), host, error_text(error), provider));
}

void put_address(Url& url, const void* address, std::size_t size) {
  Address given;
  given.length = static_cast<socklen_t>(std::min(size, sizeof given.storage));
  std::memcpy(&given.storage, address, given.length);
  if (given.host().empty()) return; // another kind of address
  url.host = given.host();
  url.port = given.port();
}

Result<std::unique_ptr<Fabric>> Fabric::open(const fi_info& info) {
  auto made = std::make_unique<Fabric>();
  made->name = info.fabric_attr->name;
  fid_fabric* fabric = nullptr;
  if (const int error = fi_fabric(info.fabric_attr, &fabric, nullptr); error != 0)
    return failed("fi_fabric", error);
  made->fabric.reset(fabric);
  if (info.ep_attr->type != FI_EP_MSG) return made;
  fi_eq_attr attributes{};
  attributes.wait_obj = FI_WAIT_FD;
  fid_eq* events = nullptr;
  if (const int error = fi_eq_open(fabric, &attributes, &events, nullptr); error != 0)
    return failed("fi_eq_open", error);
  made->events.reset(events);
  if (const int error = fi_control(&events->fid, FI_GETWAIT, &made->descriptor); error != 0)
    return failed("fi_control(FI_GETWAIT)", error);
  return made;
}

// An event makes the descriptor readable too, and so it stays until fi_trywait().
bool Fabric::has_work() const {
  if (!is_readable(descriptor)) return false;
  fid* queue = &events->fid;
  return fi_trywait(fabric.get(), &queue, 1) != FI_SUCCESS || is_readable(descriptor);
}

Result<std::unique_ptr<Domain>> Domain::open(Fabric& fabric, fi_info& info) {
  auto made = std::make_unique<Domain>();
  made->fabric_ = &fabric;
  made->name_ = info.domain_attr->name;
  made->kind_ = info.ep_attr->type == FI_EP_MSG ? EndpointKind::connected : EndpointKind::datagrams;
  made->needs_registration_ = (info.domain_attr->mr_mode & FI_MR_LOCAL) != 0;
  fid_domain* domain = nullptr;
  if (const int error = fi_domain(fabric.fabric.get(), &info, &domain, nullptr); error != 0)
    return failed(fmt::format("fi_domain({})", made->name_), error);
  made->domain_.reset(domain);
  return made;
}

Result<Completions*> Domain::completions(std::uint32_t operations, bool wakes, bool& made) {
  made = false;
  for (const auto& known : completions_) {
    if (known->room >= operations) return known.get();
  }
  auto fresh = std::make_unique<Completions>();
  fresh->room = std::max(completions_entries, operations);
  const bool connected = kind_ == EndpointKind::connected;
  fi_cq_attr attributes{};
  attributes.size = fresh->room;
  attributes.format = connected ? FI_CQ_FORMAT_DATA : FI_CQ_FORMAT_TAGGED;
  attributes.wait_obj = wakes ? FI_WAIT_FD : FI_WAIT_NONE;
  fid_cq* queue = nullptr;
  int error = fi_cq_open(domain_.get(), &attributes, &queue, nullptr);
  if (error != 0 && wakes && !connected) { // shm, opx and efa wake nobody
    attributes.wait_obj = FI_WAIT_NONE;
    error = fi_cq_open(domain_.get(), &attributes, &queue, nullptr);
  }
  if (error != 0) return failed("fi_cq_open", error);
  fresh->queue.reset(queue);
  if (attributes.wait_obj == FI_WAIT_FD) {
    error = fi_control(&queue->fid, FI_GETWAIT, &fresh->descriptor);
    if (error != 0 && connected) return failed("fi_control(FI_GETWAIT)", error);
    if (error != 0) fresh->descriptor = -1; // opx
  }
  made = true;
  return completions_.emplace_back(std::move(fresh)).get();
}

Result<void*> Domain::description(const memory::Arena& arena) {
  if (!needs_registration_) return nullptr;
  for (const Registration& known : registrations_) {
    if (known.arena != arena.id()) continue;
    if (known.region != nullptr) return fi_mr_desc(known.region.get());
    return not_registered(arena, FI_ENOMEM);
  }
  Registration& made = registrations_.emplace_back(arena.id(), nullptr);
  fid_mr* region = nullptr;
  const int error = fi_mr_reg(domain_.get(), arena.data(), arena.size(), FI_SEND | FI_RECV, 0,
                              arena.id(), 0, &region, nullptr);
  if (error != 0) return not_registered(arena, error);
  made.region.reset(region);
  return fi_mr_desc(region);
}

std::unexpected<Error> Domain::not_registered(const memory::Arena& arena, int error) const {
  return fail(ErrorKind::exhausted,
              fmt::format("cannot register {} of memory with {}: {}; raise the limit of locked "
                          "memory (ulimit -l unlimited, or LimitMEMLOCK=infinity in the unit)",
                          format_size(arena.size()), name_, error_text(error)));
}

// --- those of a network ---

Result<> Domains::watch(int descriptor) const {
  if (descriptor < 0) return {};
  epoll_event event{.events = EPOLLIN, .data = {}};
  if (epoll_ctl(epoll_, EPOLL_CTL_ADD, descriptor, &event) == 0) return {};
  return fail_errno(ErrorKind::exhausted, "epoll", errno);
}

Result<Fabric*> Domains::fabric_of(const fi_info& info) {
  for (const auto& known : fabrics_) {
    if (known->name == info.fabric_attr->name) return known.get();
  }
  auto made = FANIN_TRY(Fabric::open(info));
  FANIN_TRY(watch(made->descriptor));
  return fabrics_.emplace_back(std::move(made)).get();
}

Result<Domain*> Domains::domain_of(fi_info& info) {
  const auto fabric = FANIN_TRY(fabric_of(info));
  for (const auto& known : domains_) {
    if (known->is_of(*fabric, info)) return known.get();
  }
  auto made = FANIN_TRY(Domain::open(*fabric, info));
  return domains_.emplace_back(std::move(made)).get();
}

Result<Completions*> Domains::completions(Domain& domain, std::uint32_t operations) {
  bool made = false;
  const auto found = FANIN_TRY(domain.completions(operations, !polls_, made));
  if (made) FANIN_TRY(watch(found->descriptor));
  return found;
}

bool Domains::arm() {
  for (const auto& fabric : fabrics_) {
    std::vector<fid*>& waited_for = fabric->waited_for;
    waited_for.clear();
    if (fabric->events) waited_for.push_back(&fabric->events->fid);
    for (const auto& domain : domains_) {
      if (&domain->fabric() != fabric.get()) continue;
      for (const auto& known : domain->all_completions()) {
        if (known->descriptor >= 0) waited_for.push_back(&known->queue->fid);
      }
    }
    if (!waited_for.empty() && fi_trywait(fabric->fabric.get(), waited_for.data(),
                                          static_cast<int>(waited_for.size())) != FI_SUCCESS)
      return false;
  }
  return true;
}

} // namespace fanin::net::ofi
