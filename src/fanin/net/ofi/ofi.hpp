// ofi+PROVIDER://host:port (ofi+tcp, ofi+verbs): messages over libfabric, with whatever network its
// providers reach: reliable connected endpoints (FI_EP_MSG), addressed by IP.
//
// Each end posts receives ahead, slots of pages of its receive pool, and tells the other how many
// (posted/credits.hpp). Providers that read and write memory past the kernel are given whole arenas,
// once. Everything moves when the loop polls: completions are read each time, the events of
// connections now and then. See docs/modules/net.md.
//
// Needs libfabric when fanin is built (FANIN_HAVE_OFI).
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "fanin/base/descriptor.hpp"
#include "fanin/net/loop.hpp"
#include "fanin/net/page_filler.hpp"
#include "fanin/net/slot_map.hpp"
#include "fanin/net/transport.hpp"

struct fi_cq_data_entry;
struct fi_eq_cm_entry;
struct fi_info;
struct fid_cq;

namespace fanin::net {

namespace posted {
enum class TagKind : std::uint8_t;
}

namespace ofi {
struct Completions;
class Domain;
struct Fabric;
} // namespace ofi

struct OfiOptions {
  // Until both ends of a connection know each other.
  Duration handshake_timeout = std::chrono::seconds{5};
  // How long close() goes on to deliver what was accepted.
  Duration linger_timeout = std::chrono::seconds{5};
  // Of the transport, for what lies in no pool or in too many pieces; bytes.
  std::uint64_t copy_pool = 8U << 20;
  // Told why a connection could not be made or was broken off, in words, for the log.
  std::function<void(CloseReason, std::string_view)> report;
};

struct OfiCounters {
  std::array<std::uint64_t, close_reasons> closed{}; // connections by CloseReason
  std::uint64_t handshake_timeouts = 0;
  std::uint64_t rejected = 0; // requests for a connection that were no peer's
  std::uint64_t injected = 0; // messages sent that the provider has copied
  std::uint64_t copied = 0; // messages sent from a page of the transport
  std::uint64_t moved = 0; // messages received, so that pages are at least half full
  std::uint64_t updates = 0; // credits sent in a message of their own
};

class OfiTransport final : public Transport {
public:
  // Errors: unsupported, with the providers there are.
  [[nodiscard]] static Result<std::unique_ptr<OfiTransport>>
  make(Loop& loop, std::string_view provider, OfiOptions options = {});
  // Open connections are cut as by a crash.
  ~OfiTransport() override;

  // Option of an address: posted=N, pages of the receive pool that a connection keeps posted.
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
  [[nodiscard]] int descriptor() const override { return epoll_.get(); }
  void close(ConnectionId connection, bool abort) override;
  void trust(ConnectionId connection) override;
  [[nodiscard]] std::string peer_name(ConnectionId connection) const override;
  [[nodiscard]] std::size_t closing() const override { return closing_; }

  [[nodiscard]] const OfiCounters& counters() const { return counters_; }

private:
  enum class Stage : std::uint8_t {
    waiting, // for pages to post
    handshake, // until the provider says that the connection is there
    open,
    ended, // nothing more comes or goes; `closed` is to be reported
    closing, // closed here: what was accepted is sent, then the end, until the peer hangs up
    buried // without an endpoint, until no completion can name it any more
  };
  struct Connection;
  struct Listener;
  struct Budget {
    std::span<Event> events;
    std::size_t count = 0;
    [[nodiscard]] bool full() const { return count == events.size(); }
  };

  OfiTransport(Loop& loop, std::string_view provider, OfiOptions options, Descriptor epoll);
  [[nodiscard]] Connection* find_open(ConnectionId id) const;
  void report(CloseReason reason, const Connection& connection, std::string_view text) const;

  // making connections (ofi_setup.cpp)
  struct Terms; // what an address and options ask for
  [[nodiscard]] Result<Terms> check(const Url& url, const ConnectionOptions& options) const;
  [[nodiscard]] Result<> watch(int descriptor) const;
  [[nodiscard]] Result<ofi::Fabric*> fabric_of(const fi_info& info);
  [[nodiscard]] Result<ofi::Domain*> domain_of(fi_info& info);
  [[nodiscard]] Result<Connection*> make_connection(const ConnectionOptions& options,
                                                    const Terms& terms, fi_info& info);
  void start(Connection& connection);
  void read_events();
  [[nodiscard]] bool read_event(ofi::Fabric& fabric);
  void take_error(ofi::Fabric& fabric);
  void take_request(fi_eq_cm_entry& entry, std::size_t size);
  void take_connected(Connection& connection, std::span<const std::byte> data);
  void refuse(CloseReason reason, Connection& connection, std::string_view text);

  // sending (ofi_send.cpp)
  [[nodiscard]] bool copy(Connection& connection, std::span<const memory::View> extents,
                          std::uint32_t size, memory::View& made);
  [[nodiscard]] bool must_copy(const Connection& connection,
                               std::span<const memory::View> extents) const;
  [[nodiscard]] PageFiller* copy_filler(std::uint32_t largest);
  void pump(Connection& connection);
  [[nodiscard]] bool post(Connection& connection, std::uint32_t number);
  [[nodiscard]] bool inject(Connection& connection, std::uint32_t tag,
                            std::span<const memory::View> extents);
  void send_done(Connection& connection, std::uint32_t number);
  void check_writable(Connection& connection);

  // receiving and the rest
  void reap(ofi::Completions& completions);
  void take_completion(const fi_cq_data_entry& entry);
  void take_failure(ofi::Completions& completions);
  void sweep(ofi::Completions& completions);
  void help_poor();
  void repost(Connection& connection, std::uint32_t slot, posted::TagKind kind);
  void post_receive(Connection& connection, std::uint32_t slot);
  void make_ready(Connection& connection);
  [[nodiscard]] bool visit(Connection& connection, Budget& budget);
  [[nodiscard]] bool take_arrived(Connection& connection, Budget& budget);
  void discard_arrived(Connection& connection);
  static Event& emit(const Connection& connection, Budget& budget, EventKind kind);
  void violation(Connection& connection, std::string_view what);
  void end(Connection& connection, CloseReason reason);
  void cut(Connection& connection, CloseReason reason);
  void mark(Connection& connection);
  void bury(Connection& connection);
  void expire(Connection& connection);

  Loop& loop_;
  std::string provider_;
  OfiOptions options_;
  Descriptor epoll_;
  PageFillers fillers_;
  std::vector<std::unique_ptr<memory::PagePool>> copy_pools_; // by page size
  std::vector<std::unique_ptr<PageFiller>> copy_fillers_; // of copy_pools_
  std::vector<std::unique_ptr<ofi::Fabric>> fabrics_;
  std::vector<std::unique_ptr<ofi::Domain>> domains_;
  SlotMap<ListenerId, Listener> listeners_;
  SlotMap<ConnectionId, Connection> connections_;
  std::vector<ConnectionId> ready_; // have something for visit()
  std::vector<ConnectionId> visiting_;
  std::vector<ConnectionId> marked_; // flush() has something to do for them
  std::vector<ConnectionId> flushing_;
  std::vector<ConnectionId> poor_; // receives or their start wait for pages
  std::vector<ConnectionId> expired_;
  std::vector<ConnectionId> leaving_; // buried, or cut off: until a queue was seen empty
  std::size_t closing_ = 0;
  std::size_t setting_up_ = 0; // connections in handshake
  std::uint32_t polls_ = 0;
  bool look_ = false; // at the events of connections, with the next poll
  bool released_ = false; // pages have come back since the last poll
  OfiCounters counters_;
};

} // namespace fanin::net
