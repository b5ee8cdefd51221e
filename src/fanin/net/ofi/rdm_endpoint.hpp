// A reliable datagram endpoint and the addresses that it knows.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "fanin/net/ofi/fabric.hpp"

namespace fanin::net::ofi {

class RdmEndpoint {
public:
  // `own`: of one connection only.
  [[nodiscard]] static Result<std::shared_ptr<RdmEndpoint>>
  open(Domain& domain, Completions& completions, fi_info& info, bool own);
  ~RdmEndpoint() { completions_->room += operations_; }
  RdmEndpoint(const RdmEndpoint&) = delete;
  RdmEndpoint& operator=(const RdmEndpoint&) = delete;

  // Of operations that an endpoint for datagrams has under way at most.
  [[nodiscard]] static std::uint32_t operations_of(const fi_info& info);

  [[nodiscard]] Domain& domain() const { return domain_; }
  [[nodiscard]] bool own() const { return own_; }
  [[nodiscard]] fid_ep* get() const { return endpoint_.get(); }
  [[nodiscard]] const std::vector<std::byte>& name() const { return name_; }
  [[nodiscard]] std::uint32_t inline_most() const { return inline_most_; }
  [[nodiscard]] std::size_t pieces_most() const { return pieces_most_; }

  // Receives for one more connection: a share of those that are left; 0: there are too few.
  [[nodiscard]] std::uint32_t take_receives();
  void give_back_receives(std::uint32_t count) { receives_ += count; }

  // A peer's address, which nobody has checked. Errors: malformed, exhausted.
  [[nodiscard]] Result<fi_addr_t> insert(const std::vector<std::byte>& address);
  void remove(const std::vector<std::byte>& address); // as often as it was inserted

  // Of a connection only: left to the end of the process, as it is.
  void abandon();

private:
  struct Peer {
    fi_addr_t address = FI_ADDR_UNSPEC;
    std::uint32_t uses = 0;
  };
  RdmEndpoint(Domain& domain, Completions& completions, const fi_info& info, bool own);
  [[nodiscard]] bool is_address(std::span<const std::byte> address) const;

  Domain& domain_;
  Completions* completions_;
  std::uint32_t operations_;
  bool own_;
  bool named_by_text_;
  std::uint32_t receives_;
  std::uint32_t inline_most_;
  std::size_t pieces_most_;
  Owned<fid_av> addresses_;
  Owned<fid_ep> endpoint_; // ends before the addresses
  std::vector<std::byte> name_;
  std::map<std::vector<std::byte>, Peer> peers_;
};

} // namespace fanin::net::ofi
