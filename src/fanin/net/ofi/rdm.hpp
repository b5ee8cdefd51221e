// ofi+PROVIDER:// over providers that have reliable datagrams (FI_EP_RDM) and no connections: shm,
// cxi, opx, efa, psm3.
//
// A TCP connection to the address stands for a connection: over it both ends introduce themselves
// (introduction.hpp), and it shows that the peer is still there. Messages go from endpoint to
// endpoint; the upper bits of their tags say to which connection they belong. See
// docs/modules/net/rdma.md.
#pragma once

#include <sys/epoll.h>

#include <algorithm>
#include <array>
#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "fanin/base/descriptor.hpp"
#include "fanin/net/loop.hpp"
#include "fanin/net/ofi/fabric.hpp"
#include "fanin/net/ofi/introduction.hpp"
#include "fanin/net/ofi/rdm_endpoint.hpp"
#include "fanin/net/rdma/provider.hpp"
#include "fanin/net/unidentified_peers.hpp"

namespace fanin::net::ofi {

class RdmConnection;
class RdmProvider;

// Option of an address: domain=cxi1, which of the provider's devices.
[[nodiscard]] std::string domain_of(const Url& url);

// An object with a socket that the provider's epoll descriptor watches.
class Watched {
public:
  Watched() = default;
  Watched(const Watched&) = delete;
  Watched& operator=(const Watched&) = delete;
  virtual ~Watched() = default;
  virtual void on_ready(std::uint32_t events) = 0;
};

// A peer that has connected and has not introduced itself.
struct UnidentifiedPeer;

struct RdmListening final : rdma::Listening, Watched {
  explicit RdmListening(RdmProvider& owner) : provider(owner) {}
  ~RdmListening() override;
  void on_ready(std::uint32_t events) override;
  RdmProvider& provider;
  ListenerId id = ListenerId::none;
  Descriptor socket;
  bool paused = false; // too many unidentified peers, or no descriptor is left
};

class RdmProvider final : public rdma::Provider {
public:
  RdmProvider(Loop& loop, std::string_view provider, Descriptor epoll, Descriptor sockets);
  ~RdmProvider() override;

  [[nodiscard]] std::string scheme() const override { return "ofi+" + name_; }
  [[nodiscard]] Result<> check(const Url& url) const override;
  [[nodiscard]] Result<std::unique_ptr<rdma::Listening>>
  listen(const Url& url, ListenerId id, const memory::PagePool& receive_pool) override;
  [[nodiscard]] Result<std::unique_ptr<rdma::Endpoint>>
  connect(const Url& url, std::span<const Address> addresses) override;
  [[nodiscard]] std::size_t completions(std::span<rdma::Completion> to) override;
  [[nodiscard]] bool next_event(rdma::ProviderEvent& event) override;
  [[nodiscard]] bool arm() override;
  [[nodiscard]] int descriptor() const override { return epoll_.get(); }
  void stop() override;

  // For its connections and listeners.
  [[nodiscard]] Result<std::shared_ptr<RdmEndpoint>> endpoint(const std::string& host, bool here,
                                                              const std::string& domain);
  [[nodiscard]] std::uint32_t next_number();
  [[nodiscard]] bool watch(int socket, std::uint32_t events, Watched* watched, bool known = false);
  void unwatch(int socket);
  void queue_event(rdma::ProviderEvent event) { events_.push_back(std::move(event)); }
  void queue_completion(const rdma::Completion& completion) { done_.push_back(completion); }
  void retry_receives(RdmConnection& connection) {
    if (std::ranges::find(awaiting_post_, &connection) == awaiting_post_.end())
      awaiting_post_.push_back(&connection);
  }
  void add(RdmConnection& connection) { connections_.push_back(&connection); }
  void forget_events(const RdmConnection& connection);
  void remove(const RdmConnection& connection);
  void accept(RdmListening& listening);
  void introduced(UnidentifiedPeer& unidentified, bool as_none_of_fanin);
  void drop(const UnidentifiedPeer& unidentified);
  void drop_all_of(const RdmListening& listening);
  void check_timeouts_later();
  [[nodiscard]] Time now() const { return loop_.now(); }
  [[nodiscard]] Loop& loop() { return loop_; }

private:
  void evict(const UnidentifiedPeer& unidentified);
  void check_timeouts();
  void resume();

  Loop& loop_;
  std::string name_;
  bool own_endpoints_;
  Descriptor epoll_;
  Descriptor sockets_; // the epoll of sockets, within the other
  Domains domains_{epoll_.get(), loop_.policy() == WaitPolicy::poll};
  std::vector<std::pair<std::string, std::shared_ptr<RdmEndpoint>>> endpoints_; // by domain
  std::vector<RdmConnection*> connections_;
  std::vector<RdmConnection*> awaiting_post_; // with receives that the provider has not taken yet
  std::vector<RdmListening*> listenings_;
  UnidentifiedPeers<UnidentifiedPeer> unidentified_{UnidentifiedLimits{}};
  std::vector<std::unique_ptr<UnidentifiedPeer>> accepted_; // and not identified
  std::deque<rdma::ProviderEvent> events_;
  std::deque<rdma::Completion> done_;
  std::array<rdma::Completion, 64> read_;
  std::uint32_t last_number_ = first_number - 1;
  Duration pause_;
  Timer poll_again_; // where the provider wakes nobody
  Timer timeout_check_{[this] { check_timeouts(); }};
};

} // namespace fanin::net::ofi
