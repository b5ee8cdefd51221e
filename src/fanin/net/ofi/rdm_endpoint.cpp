#include "fanin/net/ofi/rdm_endpoint.hpp"

#include <fcntl.h>
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "fanin/base/descriptor.hpp"
#include "fanin/net/ofi/introduction.hpp"
#include "fanin/net/ofi/messages.hpp"

namespace fanin::net::ofi {
namespace {

constexpr std::size_t receives_share = 128; // of what is left, one of so many
constexpr std::uint32_t receives_least = 8;
constexpr std::size_t operations_most = 1U << 16; // some providers say that they know no limit

std::string_view text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// Of shm, whose address names its memory: 1.17 crashes when it is told of a peer without any.
bool has_memory(std::string_view address) {
  const std::size_t scheme = address.find("://");
  if (scheme == address.npos) return false;
  const std::string name(address.substr(scheme + 3).data()); // up to the zero at its end
  return bool{Descriptor(::shm_open(name.c_str(), O_RDWR | O_CLOEXEC, 0))};
}

} // namespace

std::uint32_t RdmEndpoint::operations_of(const fi_info& info) {
  return static_cast<std::uint32_t>(std::min(info.tx_attr->size, operations_most) +
                                    std::min(info.rx_attr->size, operations_most));
}

RdmEndpoint::RdmEndpoint(Domain& domain, Completions& completions, const fi_info& info, bool own)
    : domain_(domain),
      completions_(&completions),
      operations_(operations_of(info)),
      own_(own),
      named_by_text_(info.addr_format == FI_ADDR_STR),
      receives_(static_cast<std::uint32_t>(std::min(info.rx_attr->size, operations_most))),
      inline_most_(static_cast<std::uint32_t>(std::min(info.tx_attr->inject_size, copied_room))),
      pieces_most_(info.tx_attr->iov_limit) {
  completions_->room -= operations_;
}

Result<std::shared_ptr<RdmEndpoint>> RdmEndpoint::open(Domain& domain, Completions& completions,
                                                       fi_info& info, bool own) {
  std::shared_ptr<RdmEndpoint> made(new RdmEndpoint(domain, completions, info, own));
  fi_av_attr attributes{};
  attributes.type = info.domain_attr->av_type;
  fid_av* addresses = nullptr;
  long error = fi_av_open(domain.get(), &attributes, &addresses, nullptr);
  made->addresses_.reset(error == 0 ? addresses : nullptr);
  fid_ep* endpoint = nullptr;
  if (error == 0) error = fi_endpoint(domain.get(), &info, &endpoint, nullptr);
  made->endpoint_.reset(error == 0 ? endpoint : nullptr);
  if (error == 0) error = fi_ep_bind(endpoint, &addresses->fid, 0);
  if (error == 0) error = fi_ep_bind(endpoint, &completions.queue->fid, FI_TRANSMIT | FI_RECV);
  if (error == 0) error = fi_enable(endpoint);
  std::array<std::byte, address_most> name{};
  std::size_t size = name.size();
  if (error == 0) error = fi_getname(&endpoint->fid, name.data(), &size);
  if (error == 0) {
    made->name_.assign(name.begin(), name.begin() + static_cast<std::ptrdiff_t>(size));
    return made;
  }
  return fail(ErrorKind::exhausted,
              fmt::format("no endpoint of libfabric's {}: {}; `ulimit -l` (locked memory) may be "
                          "too low, /dev/shm full (shm), or too many processes use the device",
                          info.fabric_attr->prov_name, error_text(error)));
}

std::uint32_t RdmEndpoint::take_receives() {
  if (receives_ < receives_least) return 0;
  const std::uint32_t share = own_ ? rdma::receives_most
                                   : std::clamp<std::uint32_t>(receives_ / receives_share,
                                                               receives_least, rdma::receives_most);
  receives_ -= share;
  return share;
}

// A provider believes what it is given.
bool RdmEndpoint::is_address(std::span<const std::byte> address) const {
  if (!named_by_text_) return address.size() == name_.size();
  const std::string_view text = text_of(address);
  const std::string_view mine = text_of(name_);
  const std::size_t scheme = mine.find("://");
  return text.find('\0') == text.size() - 1 && scheme != mine.npos &&
         text.starts_with(mine.substr(0, scheme + 3));
}

Result<fi_addr_t> RdmEndpoint::insert(const std::vector<std::byte>& address) {
  if (!is_address(address)) return fail(ErrorKind::malformed, "has no address of this provider");
  if (named_by_text_ && !has_memory(text_of(address)))
    return fail(ErrorKind::disconnected, "its endpoint is closed");
  Peer& peer = peers_[address];
  if (peer.uses++ > 0) return peer.address;
  if (fi_av_insert(addresses_.get(), address.data(), 1, &peer.address, 0, nullptr) == 1)
    return peer.address;
  peers_.erase(address);
  return fail(ErrorKind::exhausted, "the provider takes no more addresses of peers");
}

void RdmEndpoint::remove(const std::vector<std::byte>& address) {
  const auto peer = peers_.find(address);
  if (peer == peers_.end() || --peer->second.uses > 0) return;
  (void)fi_av_remove(addresses_.get(), &peer->second.address, 1, 0);
  peers_.erase(peer);
}

// A peer in this process may still look at it, so it is not closed; but its memory, which only
// closing would remove, shall not outlive those that have it mapped.
void RdmEndpoint::abandon() {
  const std::string_view name = text_of(name_);
  const std::size_t scheme = name.find("://");
  if (named_by_text_ && scheme != name.npos)
    (void)::shm_unlink(std::string(name.substr(scheme + 3)).c_str());
  static auto& abandoned = *new std::vector<std::pair<fid_ep*, fid_av*>>;
  abandoned.emplace_back(endpoint_.release(), addresses_.release());
}

} // namespace fanin::net::ofi
