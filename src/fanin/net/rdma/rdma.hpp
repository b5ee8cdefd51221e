/// \file
/// The transport above providers whose receives are posted in advance (rdma/provider.hpp):
/// ofi+PROVIDER:// and verbs:// are this transport above such providers.
///
/// Each end posts receives, slots of pages of its receive pool, and tells the other how many
/// (rdma/credits.hpp), so that no message comes where nothing waits for it. Providers that read
/// and write memory past the kernel get each arena as a whole, once. All work is done when the loop
/// polls: completions are read in each poll, events of endpoints less often. See
/// docs/modules/net/rdma.md.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "fanin/base/export.hpp"
#include "fanin/net/close_accounts.hpp"
#include "fanin/net/connection_state.hpp"
#include "fanin/net/event_batch.hpp"
#include "fanin/net/loop.hpp"
#include "fanin/net/page_filler.hpp"
#include "fanin/net/rdma/pages.hpp"
#include "fanin/net/rdma/provider.hpp"
#include "fanin/net/resolver.hpp"
#include "fanin/net/slot_map.hpp"
#include "fanin/net/transport.hpp"
#include "fanin/net/unidentified_peers.hpp"
#include "fanin/net/work_list.hpp"

namespace fanin::net {

struct RdmaOptions {
  /// Time until both ends of a connection know each other.
  Duration handshake_timeout = std::chrono::seconds{5};
  /// Accepted connections of a listener whose peers are unidentified. Further requests are
  /// rejected. Each needs a page of the receive pool, and the oldest one is closed once its time is
  /// over and others wait for its page. `patience` is the most time: the more peers wait, the
  /// less, so that each one gets a page within half of handshake_timeout.
  UnidentifiedLimits unidentified;
  /// How long close() continues to deliver what was accepted, from the last time that the peer took
  /// a message. A message that is under way does not show how far it is: close() waits longer, by
  /// the time that it takes at 1 MB/s.
  Duration linger_timeout = std::chrono::seconds{5};
  /// After one to two of these times without a message the provider checks whether the peer is
  /// there (verbs).
  Duration keep_alive = std::chrono::seconds{2};
  /// How long the provider may use the shared receives of a closed endpoint.
  Duration retire_timeout = std::chrono::seconds{1};
  /// Bytes of the transport's own pages, for what lies in no pool or in too many pieces.
  std::uint64_t copy_pool = 8U << 20;
  ReportFunction report;
};

struct RdmaCounters {
  std::uint64_t rejected = 0; ///< requests for a connection that were rejected
  std::uint64_t posts = 0; ///< posts of sends; each sends what has gathered
  std::uint64_t inlined = 0; ///< messages sent that the provider took with the request
  std::uint64_t copied = 0; ///< messages sent from a page of the transport
  std::uint64_t moved = 0; ///< messages received, so that pages are at least half full
  std::uint64_t updates = 0; ///< credits sent in a message of their own
};

/// Three source files: rdma_setup.cpp makes connections, rdma_send.cpp sends, rdma.cpp receives and
/// ends them. They stay one type, since every step moves a connection between the lists of one
/// poll, and receives that come back may let another connection continue. What does not need these
/// lists is in types of its own: credits, receives of one connection and shared ones, hello,
/// providers.
class RdmaTransport final : public Transport {
public:
  FANIN_INTERNAL_API RdmaTransport(Loop& loop, std::unique_ptr<rdma::Provider> provider,
                                   RdmaOptions options = {});
  /// Open connections end at their peers as after a crash.
  ~RdmaTransport() override;

  /// Options of an address: posted=N, pages of the receive pool that a connection keeps posted, and
  /// where the provider can, share_above=N, connections of a receive pool with receives of their
  /// own. Others are the provider's.
  [[nodiscard]] Result<> check_address(const Url& url) const override;
  [[nodiscard]] Result<ListenerId> listen(const Url& url,
                                          const ConnectionOptions& options) override;
  [[nodiscard]] Url listening_url(ListenerId listener) const override;
  void close_listener(ListenerId listener) override;
  [[nodiscard]] Result<ConnectionId> connect(const Url& url,
                                             const ConnectionOptions& options) override;
  [[nodiscard]] SendOutcome send(ConnectionId connection,
                                 std::span<const memory::View> extents) override;
  void flush() override;
  [[nodiscard]] std::size_t poll(std::span<Event> events) override;
  [[nodiscard]] bool arm() override;
  [[nodiscard]] int descriptor() const override { return provider_->descriptor(); }
  void close(ConnectionId connection, bool abort) override;
  void mark_identified(ConnectionId connection) override;
  [[nodiscard]] std::string peer_name(ConnectionId connection) const override;
  [[nodiscard]] std::size_t closing() const override { return closing_; }
  [[nodiscard]] std::uint64_t given_up() const override { return given_up_; }

  [[nodiscard]] const CloseAccounts& accounts() const { return accounts_; }
  [[nodiscard]] const RdmaCounters& counters() const { return counters_; }

private:
  using Connection = rdma::Connection;
  using ConnectionList = WorkList<Connection>;
  struct Listener;
  struct Terms { // of the connections of an address
    ConnectionOptions options; // checked
    rdma::ReceiveOptions receives;
  };
  void report(CloseReason reason, Connection& connection, std::string_view text) const;

  // making connections (rdma_setup.cpp)
  [[nodiscard]] Result<Terms> terms_of(const Url& url, const ConnectionOptions& options) const;
  Connection& make_connection(const Terms& terms, std::unique_ptr<rdma::Endpoint> endpoint);
  [[nodiscard]] Result<> check_room(const Connection& connection) const;
  [[nodiscard]] Result<> open(Connection& connection);
  [[nodiscard]] rdma::SharedReceives* to_share(Connection& connection);
  void take_addresses(Connection& connection, const Resolver::Found& found);
  void start(Connection& connection);
  void read_events();
  void take_event(rdma::ProviderEvent& event);
  void take_request(rdma::ProviderEvent& event);
  void admit(Connection& connection);
  void admit_waiting(Listener& listener);
  void leave_unidentified(Connection& connection);
  [[nodiscard]] Duration patience(const Listener& listener) const;
  void make_room(Listener& listener);
  void evict(Connection& unidentified);
  void take_ready(Connection& connection);
  void take_connected(Connection& connection, const rdma::HelloBytes& bytes);
  void take_refused(Connection& connection, const rdma::ProviderEvent& event);
  void refuse(CloseReason reason, Connection& connection, std::string_view text);

  // sending (rdma_send.cpp)
  [[nodiscard]] bool copy(Connection& connection, std::span<const memory::View> extents,
                          std::uint32_t size, memory::View& made);
  [[nodiscard]] bool must_copy(Connection& connection, std::span<const memory::View> extents);
  [[nodiscard]] bool reaches(Connection& connection, const memory::Arena* arena);
  [[nodiscard]] PageFiller* copy_filler(std::uint32_t largest);
  [[nodiscard]] static bool may_copy(const Connection& connection);
  void retry_copying();
  void pump(Connection& connection);
  void sent_until(Connection& connection, std::uint32_t end);
  void release(Connection& connection, std::uint32_t number);
  void check_writable(Connection& connection);

  // receiving and the rest
  void reap();
  void take_completion(const rdma::Completion& completion);
  void take_failure(Connection& connection, const rdma::Completion& completion);
  void sweep();
  void retry_starved();
  void post_collected(Connection& connection);
  void drop(Connection& connection, std::uint32_t slot);
  void replenish(Connection& connection);
  void replenish_given_back();
  void mark_starved(Connection& connection);
  void visit(Connection& connection, EventBatch& events);
  [[nodiscard]] bool take_arrived(Connection& connection, EventBatch& events);
  void discard_arrived(Connection& connection);
  void violation(Connection& connection, std::string_view what);
  void end(Connection& connection, CloseReason reason);
  void cut(Connection& connection, CloseReason reason);
  void retire(Connection& connection);
  void give_up(Connection& connection, std::string_view why);
  void wait_for_progress(Connection& connection);
  void expire(Connection& connection);
  void probe();

  Loop& loop_;
  RdmaOptions options_;
  PageFillers fillers_;
  std::vector<std::unique_ptr<memory::PagePool>> copy_pools_; // by page size
  std::unique_ptr<rdma::Provider> provider_; // ends before the pools that it knows
  std::vector<std::unique_ptr<rdma::SharedReceives>> shared_; // end after their connections
  CloseAccounts accounts_;
  SlotMap<ListenerId, Listener> listeners_;
  SlotMap<ConnectionId, Connection> connections_;
  std::array<rdma::Completion, 64> completions_;
  std::array<rdma::Send, rdma::sends_most> batch_; // that goes to an endpoint
  std::vector<rdma::Receive> collected_; // to be posted for the connection that is looked at
  Timer probe_tick_{[this] { probe(); }}; // while there are connections
  ConnectionList ready_; // have something for visit()
  ConnectionList flush_list_; // flush() has something to do for them
  ConnectionList starved_; // receives or their start wait for pages
  ConnectionList given_out_; // messages in pages of theirs, with the last poll
  ConnectionList copying_; // wait for pages to copy to, which all share
  ConnectionList expired_; // their deadline has passed
  ConnectionList to_sweep_; // retired, or cut off: until the queues have been empty once
  ConnectionList draining_; // retired: they go once their endpoints are retired
  std::size_t closing_ = 0;
  std::uint64_t given_up_ = 0;
  std::size_t setting_up_ = 0; // connections that are connecting or in the handshake
  std::uint32_t polls_ = 0;
  std::size_t names_tried_ = 0; // connects by name: the next takes the next address
  bool check_endpoints_ = false; // at the events of endpoints, with the next poll
  bool released_ = false; // pages have come back since the last poll
  bool memory_logged_ = false;
  bool sharing_logged_ = false;
  RdmaCounters counters_;
};

} // namespace fanin::net
