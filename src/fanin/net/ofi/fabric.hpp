// Owners of what libfabric gives: what there is (providers and their addresses), fabrics with their
// event queue, and domains with their completion queues and the memory registered there.
#pragma once

#include <cerrno>
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

// Call it before fi_eq_read() and fi_cq_read(). Where a program has hung up before its request was
// whole, the tcp provider before 2.2 judges by errno. With an older EAGAIN there it keeps the
// socket, which stays readable: in 1.17 a loop never sleeps again.
inline void forget_errno() { errno = 0; }

// Of libfabric; negative or positive.
[[nodiscard]] std::string error_text(long error);

enum class EndpointKind : std::uint8_t {
  connected, // FI_EP_MSG
  datagrams // reliable ones, FI_EP_RDM
};

// A provider's connected endpoint for an address of this host (`listen`) or of a peer. Looks names
// up, and blocks for it. Errors: not_found, with what there is.
[[nodiscard]] Result<Info> find_endpoint(std::string_view provider, const Url& url, bool listen);
// A provider's endpoint for datagrams, on the domain that is named, or any. Where its addresses are
// IP addresses, it is at `host` of this host (`here`), or has a route to `host`. Errors: not_found.
[[nodiscard]] Result<Info> find_datagrams(std::string_view provider, const std::string& host,
                                          bool here, const std::string& domain);
// The kind of endpoints that a provider has on this host: connected ones if it has both. Errors:
// unsupported, with what there is.
[[nodiscard]] Result<EndpointKind> check_provider(std::string_view provider);
inline constexpr std::string_view domain_option = "domain"; // of datagrams
// The names of the options of an address. Errors: usage.
[[nodiscard]] Result<> check_options(const Url& url, EndpointKind kind);
// Whether a provider of datagrams has that device here. Errors: not_found.
[[nodiscard]] Result<> check_domain(std::string_view provider, const std::string& domain);
// Each connection gets an endpoint of its own: in libfabric 1.17 a peer that has died or is slow
// holds up what its endpoint sends to others, and an endpoint of this provider costs only memory.
[[nodiscard]] inline bool has_endpoints_to_spare(std::string_view provider) {
  return provider == "shm";
}
// The providers that have endpoints of either kind.
[[nodiscard]] std::vector<std::string> usable_providers();

// An IP address as an URL has it.
void put_address(Url& url, const void* address, std::size_t size);

struct Fabric {
  [[nodiscard]] static Result<std::unique_ptr<Fabric>> open(const fi_info& info);
  // Whether reading the event queue once more may do something, although there was no event. Costs
  // system calls.
  [[nodiscard]] bool has_work() const;
  std::string name;
  Owned<fid_fabric> fabric;
  Owned<fid_eq> events; // of connected endpoints
  int descriptor = -1; // readable when there are events
  std::vector<fid*> waited_for; // room for arm()
};

// Shared by connections, as many as it has room for.
struct Completions {
  Owned<fid_cq> queue;
  int descriptor = -1; // none: nobody is woken
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
  // A queue that takes so many more operations at once. `wakes`: the loop can wait for it, which
  // costs the provider time for each completion. `made`: it is new. Use Domains::completions().
  [[nodiscard]] Result<Completions*> completions(std::uint32_t operations, bool wakes, bool& made);
  [[nodiscard]] const std::vector<std::unique_ptr<Completions>>& all_completions() const {
    return completions_;
  }

  // Memory has to be registered with the provider, each arena as a whole and once.
  [[nodiscard]] bool needs_registration() const { return needs_registration_; }
  // What the provider needs beside an address in this memory; null: nothing. Errors: exhausted
  // (memlock).
  [[nodiscard]] Result<void*> description(const memory::Arena& arena);

private:
  struct Registration {
    std::uint64_t arena = 0;
    Owned<fid_mr> region; // null: it failed
  };
  [[nodiscard]] std::unexpected<Error> not_registered(const memory::Arena& arena, int error) const;

  Fabric* fabric_ = nullptr;
  std::string name_;
  EndpointKind kind_ = EndpointKind::connected;
  bool needs_registration_ = false;
  Owned<fid_domain> domain_;
  std::vector<std::unique_ptr<Completions>> completions_;
  std::vector<Registration> registrations_;
};

// The domains of a network. Its epoll descriptor watches what wakes it.
class Domains {
public:
  // `polls`: the loop waits only for events, and polls for completions.
  Domains(int epoll, bool polls) : epoll_(epoll), polls_(polls) {}
  [[nodiscard]] Result<Fabric*> fabric_of(const fi_info& info);
  [[nodiscard]] Result<Domain*> domain_of(fi_info& info);
  [[nodiscard]] Result<Completions*> completions(Domain& domain, std::uint32_t operations);
  [[nodiscard]] bool arm(); // as a network's
  [[nodiscard]] const std::vector<std::unique_ptr<Fabric>>& fabrics() const { return fabrics_; }
  [[nodiscard]] const std::vector<std::unique_ptr<Domain>>& all() const { return domains_; }

private:
  [[nodiscard]] Result<> watch(int descriptor) const;

  int epoll_;
  bool polls_;
  std::vector<std::unique_ptr<Fabric>> fabrics_;
  std::vector<std::unique_ptr<Domain>> domains_;
};

} // namespace fanin::net::ofi
