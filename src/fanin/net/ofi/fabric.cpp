#include "fanin/net/ofi/fabric.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstddef>
#include <cstring>

#include <fmt/format.h>

#include "fanin/base/units.hpp"

namespace fanin::net::ofi {
namespace {

// A tcp provider asks the kernel once for each queue, so they are few and large; devices have
// limits of 32767 and more.
constexpr std::uint32_t completions_entries = 16384;

Info hints_for(std::string_view provider) {
  Info hints(fi_allocinfo());
  hints->caps = FI_MSG;
  hints->tx_attr->comp_order = FI_ORDER_STRICT;
  hints->mode = FI_CONTEXT | FI_CONTEXT2 | FI_RX_CQ_DATA; // verbs has no data beside a message
                                                          // for who does not know the last
  hints->ep_attr->type = FI_EP_MSG;
  hints->domain_attr->threading = FI_THREAD_DOMAIN;
  hints->domain_attr->cq_data_size = sizeof(std::uint32_t);
  hints->domain_attr->mr_mode = FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
  if (!provider.empty())
    hints->fabric_attr->prov_name = ::strndup(provider.data(), provider.size());
  return hints;
}

// In 1.17 it crashes when it connects, and it is gone from 2.0 on.
bool is_broken(std::string_view provider) { return provider == "sockets"; }

// What a transport here needs of an endpoint.
bool is_usable(const fi_info& info) {
  return info.domain_attr->cq_data_size >= sizeof(std::uint32_t) &&
         !is_broken(info.fabric_attr->prov_name);
}

std::string there_are() {
  std::string text;
  for (const std::string& name : usable_providers()) {
    text += fmt::format("{}ofi+{}", text.empty() ? "" : ", ", name);
  }
  return text.empty() ? "none; `fi_info -t FI_EP_MSG` shows what libfabric finds" : text;
}

// Both families of addresses have it in the same place.
void set_port(void* address, std::size_t size, std::uint16_t port) {
  static_assert(offsetof(sockaddr_in, sin_port) == offsetof(sockaddr_in6, sin6_port));
  const std::uint16_t in_network_order = htons(port);
  if (address == nullptr || size < sizeof(sockaddr_in)) return;
  std::memcpy(static_cast<std::byte*>(address) + offsetof(sockaddr_in, sin_port), &in_network_order,
              sizeof in_network_order);
}

Result<> failed(std::string_view what, long error) {
  return fail(ErrorKind::exhausted, fmt::format("libfabric: {}: {}", what, error_text(error)));
}

} // namespace

std::string error_text(long error) {
  return fi_strerror(static_cast<int>(error < 0 ? -error : error));
}

std::vector<std::string> usable_providers() {
  std::vector<std::string> names;
  fi_info* found = nullptr;
  const Info hints = hints_for({});
  if (fi_getinfo(api_version, nullptr, nullptr, 0, hints.get(), &found) != 0) return names;
  const Info owner(found);
  for (const fi_info* info = found; info != nullptr; info = info->next) {
    const std::string name = info->fabric_attr->prov_name;
    if (is_usable(*info) && std::ranges::find(names, name) == names.end()) names.push_back(name);
  }
  return names;
}

Result<> check_provider(std::string_view provider) {
  fi_info* found = nullptr;
  const Info hints = hints_for(provider);
  const int error = fi_getinfo(api_version, nullptr, nullptr, 0, hints.get(), &found);
  const Info owner(found);
  if (error == 0 && is_usable(*found)) return {};
  return fail(ErrorKind::unsupported,
              fmt::format("ofi+{}: libfabric {}.{} has no such provider with connected endpoints "
                          "(FI_EP_MSG) on this host; there are: {}. Those that only have reliable "
                          "datagrams (FI_EP_RDM: cxi, opx, efa, psm3, shm) are not supported yet",
                          provider, FI_MAJOR(fi_version()), FI_MINOR(fi_version()), there_are()));
}

Result<Info> find_endpoint(std::string_view provider, const Url& url, bool listen) {
  const std::string host = url.host.empty() ? "127.0.0.1" : url.host;
  // A port that is in use is seen when listening; verbs would say here that there is no address.
  const std::string port = fmt::format("{}", listen ? 0 : url.port);
  fi_info* found = nullptr;
  const Info hints = hints_for(provider);
  const int error = fi_getinfo(api_version, host.c_str(), port.c_str(), listen ? FI_SOURCE : 0,
                               hints.get(), &found);
  Info info(found);
  if (error == 0 && is_usable(*found)) {
    if (listen) set_port(info->src_addr, info->src_addrlen, url.port);
    return info;
  }
  return fail(
      ErrorKind::not_found,
      fmt::format("{}: the provider has no way to \"{}\" ({}); `fi_info -p {} -t FI_EP_MSG` "
                  "shows the addresses that it has here",
                  url.text(), host, error_text(error), provider));
}

void put_address(Url& url, const void* address, std::size_t size) {
  char text[INET6_ADDRSTRLEN] = "";
  sockaddr family{};
  std::memcpy(&family, address, std::min(size, sizeof family));
  if (family.sa_family == AF_INET && size >= sizeof(sockaddr_in)) {
    sockaddr_in ip4;
    std::memcpy(&ip4, address, sizeof ip4);
    url.host = ::inet_ntop(AF_INET, &ip4.sin_addr, text, sizeof text);
    url.port = ntohs(ip4.sin_port);
  } else if (family.sa_family == AF_INET6 && size >= sizeof(sockaddr_in6)) {
    sockaddr_in6 ip6;
    std::memcpy(&ip6, address, sizeof ip6);
    url.host = ::inet_ntop(AF_INET6, &ip6.sin6_addr, text, sizeof text);
    url.port = ntohs(ip6.sin6_port);
  }
}

Result<std::unique_ptr<Fabric>> Fabric::open(const fi_info& info) {
  auto made = std::make_unique<Fabric>();
  made->name = info.fabric_attr->name;
  fid_fabric* fabric = nullptr;
  if (const int error = fi_fabric(info.fabric_attr, &fabric, nullptr); error != 0)
    return std::unexpected(failed("fi_fabric", error).error());
  made->fabric.reset(fabric);
  fi_eq_attr attributes{};
  attributes.wait_obj = FI_WAIT_FD;
  fid_eq* events = nullptr;
  if (const int error = fi_eq_open(fabric, &attributes, &events, nullptr); error != 0)
    return std::unexpected(failed("fi_eq_open", error).error());
  made->events.reset(events);
  if (const int error = fi_control(&events->fid, FI_GETWAIT, &made->descriptor); error != 0)
    return std::unexpected(failed("fi_control(FI_GETWAIT)", error).error());
  return made;
}

Result<std::unique_ptr<Domain>> Domain::open(Fabric& fabric, fi_info& info) {
  auto made = std::make_unique<Domain>();
  made->fabric_ = &fabric;
  made->name_ = info.domain_attr->name;
  made->needs_registration_ = (info.domain_attr->mr_mode & FI_MR_LOCAL) != 0;
  fid_domain* domain = nullptr;
  if (const int error = fi_domain(fabric.fabric.get(), &info, &domain, nullptr); error != 0)
    return std::unexpected(failed(fmt::format("fi_domain({})", made->name_), error).error());
  made->domain_.reset(domain);
  return made;
}

Result<Completions*> Domain::completions(std::uint32_t operations, bool& made) {
  made = false;
  for (const auto& known : completions_) {
    if (known->room >= operations) return known.get();
  }
  auto fresh = std::make_unique<Completions>();
  fresh->room = completions_entries;
  fi_cq_attr attributes{};
  attributes.size = completions_entries;
  attributes.format = FI_CQ_FORMAT_DATA;
  attributes.wait_obj = FI_WAIT_FD;
  fid_cq* queue = nullptr;
  if (const int error = fi_cq_open(domain_.get(), &attributes, &queue, nullptr); error != 0)
    return std::unexpected(failed("fi_cq_open", error).error());
  fresh->queue.reset(queue);
  if (const int error = fi_control(&queue->fid, FI_GETWAIT, &fresh->descriptor); error != 0)
    return std::unexpected(failed("fi_control(FI_GETWAIT)", error).error());
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

} // namespace fanin::net::ofi
