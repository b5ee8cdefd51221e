/// \file
/// fault+tcp://host:port?seed=1&loss=0.001&delay=1ms&backpressure=0.1: faults of a bad network,
/// above any transport and within its contract. They happen at the end whose address has these
/// options; the address that a listener gives out has them too.
///
/// Each connection draws from a stream of its own, made from the seed and its number here, so that
/// what happens to one does not depend on what others do meanwhile.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>

#include "fanin/base/random.hpp"
#include "fanin/net/decorator.hpp"
#include "fanin/net/due_queue.hpp"
#include "fanin/net/loop.hpp"

namespace fanin::net {

struct FaultOptions {
  std::uint64_t seed = 1;
  /// Probability that a message, sent or received here, is lost and its connection with it: this
  /// end and the peer get `closed` with peer_died.
  double loss = 0;
  /// Probability that a message is refused although there is room. `writable` follows, and then one
  /// message is not refused here, so that all get through even at 1.
  double backpressure = 0;
  /// Events are held back by a time from 0 to this, drawn for each. The order within a connection
  /// is kept, and connections overtake one another.
  Duration delay{};

  /// Takes the options that it knows out of the address. Errors: usage; the text names the option.
  [[nodiscard]] static Result<FaultOptions> take_from(Url& url);
};

struct FaultCounters {
  std::uint64_t lost = 0; ///< connections
  std::uint64_t refused = 0; ///< messages
  std::uint64_t delayed = 0; ///< events
};

class FaultTransport final : public Decorator {
public:
  /// The loop outlives the transport.
  FaultTransport(Loop& loop, std::unique_ptr<Transport> below)
      : Decorator("fault", std::move(below)), loop_(loop) {}

  [[nodiscard]] const FaultCounters& counters() const { return counters_; }
  [[nodiscard]] std::size_t held() const { return held_.size(); } ///< events

  [[nodiscard]] Result<> check_address(const Url& url) const override;
  [[nodiscard]] Result<ListenerId> listen(const Url& url,
                                          const ConnectionOptions& options) override;
  [[nodiscard]] Url listening_url(ListenerId listener) const override;
  void close_listener(ListenerId listener) override;
  [[nodiscard]] Result<ConnectionId> connect(const Url& url,
                                             const ConnectionOptions& options) override;
  [[nodiscard]] SendOutcome send(ConnectionId connection,
                                 std::span<const memory::View> extents) override;
  [[nodiscard]] std::size_t poll(std::span<Event> events) override;
  [[nodiscard]] bool arm() override;
  [[nodiscard]] int descriptor() const override;
  void close(ConnectionId connection, bool abort) override;
  /// Towards the transport below, this one is the loop: the Decorator's would pass them on.
  /// NOLINTNEXTLINE(bugprone-parent-virtual-call)
  void dispatching(std::span<Event> events) override { Transport::dispatching(events); }

private:
  // Where a connection comes from, a listener or connect(). The transport below takes it for the
  // handler, so that an `accepted` event tells which listener it is of.
  struct Origin final : Handler {
    FaultOptions faults;
    std::map<std::string, std::string> url_options; // `faults` as they were written
    Handler* owner = nullptr;
    ListenerId listener = ListenerId::none;
    void on_event(Transport&, Event&) override {} // events go to the owner
  };
  struct Connection {
    std::shared_ptr<Origin> origin;
    Random random;
    Time last_due{};
    bool open = false; // its owner has been told
    bool ended = false; // `closed` is held
    bool refused = false; // `writable` is held
    bool accepts_next = false; // the next message is not refused
    [[nodiscard]] bool draw(double probability) {
      return probability > 0 && random.unit() < probability;
    }
  };

  [[nodiscard]] Result<std::shared_ptr<Origin>> make_origin(Url& url,
                                                            const ConnectionOptions& options);
  Connection& add(ConnectionId id, std::shared_ptr<Origin> origin);
  Connection* find(ConnectionId id);
  [[nodiscard]] bool full() const;
  void take_from_below(std::size_t limit);
  void take(Event event);
  void lose(ConnectionId id, Connection& connection);
  void hold(Connection& connection, Event event);
  [[nodiscard]] Event hand_out();
  void set_timer();

  Loop& loop_;
  FaultCounters counters_;
  std::unordered_map<ListenerId, std::shared_ptr<Origin>> listeners_;
  std::unordered_map<ConnectionId, Connection> connections_;
  std::uint64_t connections_made_ = 0;
  DueQueue<Event> held_;
  bool released_ = false; // pages have come back since the last poll
  Timer wake_; // the turn after it polls
};

} // namespace fanin::net
