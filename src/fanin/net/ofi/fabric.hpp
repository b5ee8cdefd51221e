// Owners of what libfabric gives: what there is (providers and their addresses), fabrics with their
// event queue, and domains with their completion queues and the memory registered there.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>

#include "fanin/base/result.hpp"
#include "fanin/memory/arena.hpp"
#include "fanin/net/url.hpp"

namespace fanin::net::ofi {

inline constexpr std::uint32_t api_version = FI_VERSION(1, 17);

struct Close {
  template <class Object>
  void operator()(Object* object) const {
    (void)fi_close(&object->fid);
  }
};
template <class Object>
using Owned = std::unique_ptr<Object, Close>;

struct FreeInfo {
  void operator()(fi_info* info) const { fi_freeinfo(info); }
};
using Info = std::unique_ptr<fi_info, FreeInfo>;

// Of libfabric; negative or positive.
[[nodiscard]] std::string error_text(long error);

// A provider's connected endpoint for an address of this host (`listen`) or of a peer. Looks names
// up, and blocks for it. Errors: not_found, with what there is.
[[nodiscard]] Result<Info> find_endpoint(std::string_view provider, const Url& url, bool listen);
// Whether a provider has connected endpoints here. Errors: unsupported, with what there is.
[[nodiscard]] Result<> check_provider(std::string_view provider);
// Those that have.
[[nodiscard]] std::vector<std::string> usable_providers();

// An IP address as an URL has it.
void put_address(Url& url, const void* address, std::size_t size);

struct Fabric {
  [[nodiscard]] static Result<std::unique_ptr<Fabric>> open(const fi_info& info);
  std::string name;
  Owned<fid_fabric> fabric;
  Owned<fid_eq> events;
  int descriptor = -1; // readable when there are events
  std::vector<fid*> waited_for; // room for arm()
};

// Shared by connections, as many as it has room for.
struct Completions {
  Owned<fid_cq> queue;
  int descriptor = -1;
  std::uint32_t room = 0; // operations
};

class Domain {
public:
  [[nodiscard]] static Result<std::unique_ptr<Domain>> open(Fabric& fabric, fi_info& info);

  [[nodiscard]] Fabric& fabric() const { return *fabric_; }
  [[nodiscard]] fid_domain* get() const { return domain_.get(); }
  [[nodiscard]] bool is_of(const Fabric& fabric, const fi_info& info) const {
    return fabric_ == &fabric && name_ == info.domain_attr->name;
  }
  // One that takes so many more operations at once. `made`: it is new.
  [[nodiscard]] Result<Completions*> completions(std::uint32_t operations, bool& made);
  [[nodiscard]] const std::vector<std::unique_ptr<Completions>>& all_completions() const {
    return completions_;
  }

  // Memory is named to the provider, a whole arena once.
  [[nodiscard]] bool needs_registration() const { return needs_registration_; }
  // What a provider wants to see beside an address within it; null where it needs nothing. Errors:
  // exhausted (memlock).
  [[nodiscard]] Result<void*> description(const memory::Arena& arena);

private:
  struct Registration {
    std::uint64_t arena = 0;
    Owned<fid_mr> region; // null: it failed
  };
  [[nodiscard]] std::unexpected<Error> not_registered(const memory::Arena& arena, int error) const;

  Fabric* fabric_ = nullptr;
  std::string name_;
  bool needs_registration_ = false;
  Owned<fid_domain> domain_;
  std::vector<std::unique_ptr<Completions>> completions_;
  std::vector<Registration> registrations_;
};

} // namespace fanin::net::ofi
