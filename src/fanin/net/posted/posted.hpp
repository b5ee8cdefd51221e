// Messages over a network whose receives are posted ahead (posted/network.hpp): ofi+PROVIDER:// and
// verbs:// are this transport over two of them.
//
// Each end posts receives, slots of pages of its receive pool, and tells the other how many
// (posted/credits.hpp), so that no message comes where nothing waits for it. Networks that read and
// write memory past the kernel are given whole arenas, once. Everything moves when the loop polls:
// completions are read each time, the events of links now and then. See docs/modules/net.md.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "fanin/net/loop.hpp"
#include "fanin/net/page_filler.hpp"
#include "fanin/net/posted/network.hpp"
#include "fanin/net/posted/pages.hpp"
#include "fanin/net/resolver.hpp"
#include "fanin/net/slot_map.hpp"
#include "fanin/net/transport.hpp"

namespace fanin::net {

struct PostedOptions {
  // Until both ends of a connection know each other.
  Duration handshake_timeout = std::chrono::seconds{5};
  // How long a peer may stay without having said who it is, while others wait for its page.
  Duration undisturbed = std::chrono::seconds{1};
  // How long close() goes on to deliver what was accepted.
  Duration linger_timeout = std::chrono::seconds{5};
  // After one to two of them without a word the network looks whether the peer is there (verbs).
  Duration keep_alive = std::chrono::seconds{2};
  // How long a closed link may take until the network is done with receives that it shared.
  Duration rest_timeout = std::chrono::seconds{1};
  // Of the transport, for what lies in no pool or in too many pieces; bytes.
  std::uint64_t copy_pool = 8U << 20;
  // Told why a connection could not be made or was broken off, in words, for the log.
  std::function<void(CloseReason, std::string_view)> report;
};

struct PostedCounters {
  std::array<std::uint64_t, close_reasons> closed{}; // connections by CloseReason
  std::uint64_t handshake_timeouts = 0;
  std::uint64_t rejected = 0; // requests for a connection that were no peer's
  std::uint64_t posts = 0; // of sends; each takes what has gathered
  std::uint64_t inlined = 0; // messages sent that the network took with the request
  std::uint64_t copied = 0; // messages sent from a page of the transport
  std::uint64_t moved = 0; // messages received, so that pages are at least half full
  std::uint64_t updates = 0; // credits sent in a message of their own
};

class PostedTransport final : public Transport {
public:
  PostedTransport(Loop& loop, std::unique_ptr<posted::Network> network, PostedOptions options = {});
  // Open connections are cut as by a crash.
  ~PostedTransport() override;

  // Options of an address: posted=N, pages of the receive pool that a connection keeps posted, and
  // where the network can, share_above=N, connections of a receive pool with receives of their own.
  // Others are the network's.
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
  [[nodiscard]] int descriptor() const override { return network_->descriptor(); }
  void close(ConnectionId connection, bool abort) override;
  void trust(ConnectionId connection) override;
  [[nodiscard]] std::string peer_name(ConnectionId connection) const override;
  [[nodiscard]] std::size_t closing() const override { return closing_; }

  [[nodiscard]] const PostedCounters& counters() const { return counters_; }

private:
  using Connection = posted::Connection;
  struct Listener;
  struct Terms { // what an address and options ask for
    std::uint32_t max_message = 0;
    posted::ReceiveOptions receives;
  };
  struct Budget {
    std::span<Event> events;
    std::size_t count = 0;
    [[nodiscard]] bool full() const { return count == events.size(); }
  };

  [[nodiscard]] Connection* find_open(ConnectionId id) const;
  void report(CloseReason reason, const Connection& connection, std::string_view text) const;

  // making connections (posted_setup.cpp)
  [[nodiscard]] Result<Terms> check(const Url& url, const ConnectionOptions& options) const;
  Connection& make_connection(const ConnectionOptions& options, const Terms& terms,
                              std::unique_ptr<posted::Link> link);
  [[nodiscard]] Result<> open(Connection& connection);
  [[nodiscard]] posted::SharedReceives* to_share(Connection& connection);
  void take_addresses(Connection& connection, const Resolver::Found& found);
  void start(Connection& connection);
  void read_events();
  void take_event(posted::LinkEvent& event);
  void take_request(posted::LinkEvent& event);
  void admit(Connection& connection);
  void admit_waiting(Listener& listener);
  void leave_unidentified(Connection& connection);
  void make_room();
  void take_ready(Connection& connection);
  void take_connected(Connection& connection, const posted::HelloBytes& bytes);
  void take_refused(Connection& connection, const posted::LinkEvent& event);
  void refuse(CloseReason reason, Connection& connection, std::string_view text);

  // sending (posted_send.cpp)
  [[nodiscard]] bool copy(Connection& connection, std::span<const memory::View> extents,
                          std::uint32_t size, memory::View& made);
  [[nodiscard]] bool must_copy(Connection& connection, std::span<const memory::View> extents);
  [[nodiscard]] bool reaches(Connection& connection, const memory::Arena* arena);
  [[nodiscard]] PageFiller* copy_filler(std::uint32_t largest);
  [[nodiscard]] bool may_copy(ConnectionId id) const;
  void help_copying();
  void pump(Connection& connection);
  void sent_until(Connection& connection, std::uint32_t end);
  void release(Connection& connection, std::uint32_t number);
  void check_writable(Connection& connection);

  // receiving and the rest
  void reap();
  void take_completion(const posted::Completion& completion);
  void take_failure(Connection& connection, const posted::Completion& completion);
  void sweep();
  void help_poor();
  void post_collected(Connection& connection);
  void drop(Connection& connection, std::uint32_t slot);
  void replenish(Connection& connection);
  void replenish_given_back();
  void be_poor(Connection& connection);
  void make_ready(Connection& connection);
  void visit(Connection& connection, Budget& budget);
  [[nodiscard]] bool take_arrived(Connection& connection, Budget& budget);
  void discard_arrived(Connection& connection);
  static Event& emit(const Connection& connection, Budget& budget, EventKind kind);
  void violation(Connection& connection, std::string_view what);
  void end(Connection& connection, CloseReason reason);
  void cut(Connection& connection, CloseReason reason);
  void mark(Connection& connection);
  void bury(Connection& connection);
  void expire(Connection& connection);
  void probe();

  Loop& loop_;
  PostedOptions options_;
  PageFillers fillers_;
  std::vector<std::unique_ptr<memory::PagePool>> copy_pools_; // by page size
  std::unique_ptr<posted::Network> network_; // ends before the pools that it knows
  std::vector<std::unique_ptr<posted::SharedReceives>> shared_; // end after their connections
  SlotMap<ListenerId, Listener> listeners_;
  SlotMap<ConnectionId, Connection> connections_;
  std::array<posted::Completion, 64> completions_;
  std::array<posted::Send, posted::sends_most> batch_; // that goes to a link
  std::vector<posted::Receive> collected_; // to be posted for the connection that is looked at
  Timer probing_{[this] { probe(); }}; // while there are connections
  Timer crowding_{[this] { make_room(); }}; // while unidentified peers wait for each other
  std::vector<ConnectionId> ready_; // have something for visit()
  std::vector<ConnectionId> visiting_;
  std::vector<ConnectionId> marked_; // flush() has something to do for them
  std::vector<ConnectionId> flushing_;
  std::vector<ConnectionId> poor_; // receives or their start wait for pages
  std::vector<ConnectionId> given_out_; // messages in pages of theirs, with the last poll
  std::vector<ConnectionId> copying_; // wait for pages to copy to, which all share
  std::vector<ConnectionId> expired_;
  std::vector<ConnectionId> leaving_; // buried, or cut off: until the queues have been empty once
  std::vector<ConnectionId> resting_; // buried, once their links are at rest they go
  std::size_t closing_ = 0;
  std::size_t setting_up_ = 0; // connections in handshake, or without a way
  std::uint32_t polls_ = 0;
  std::size_t names_tried_ = 0; // connects by name: the next takes the next address
  bool look_ = false; // at the events of links, with the next poll
  bool released_ = false; // pages have come back since the last poll
  bool told_of_memory_ = false;
  bool told_of_sharing_ = false;
  PostedCounters counters_;
};

} // namespace fanin::net
