// The event manager's connections: accepts nodes that say hello, resumes a connection that was
// lost, drops nodes that are silent. It hands what nodes say to an interface; what they are told
// goes through their channels.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fanin/base/log_limiter.hpp"
#include "fanin/base/state.hpp"
#include "fanin/builder/control/control_channel.hpp"
#include "fanin/builder/control/node_environment.hpp"
#include "fanin/builder/control/node_outbox.hpp"
#include "fanin/builder/rails.hpp"
#include "fanin/builder/system.hpp"

namespace fanin::builder {

// Thread: its loop.
class ControlServer final : public NodeOutbox, public net::Handler {
public:
  struct Refusal {
    std::string reason;
    wire::RefusalKind kind = wire::RefusalKind::for_good;
    LogLevel level = LogLevel::warning;
  };
  // The coordinator of the run. Called on the loop; it may send to nodes, and drop() them.
  class Nodes {
  public:
    virtual ~Nodes() = default;
    // Why a node with a correct hello may not take part now; none: it may.
    [[nodiscard]] virtual std::optional<Refusal> refusal(NodeKey key) = 0;
    // It takes part from now on: it has to be welcomed. `rails`: of a builder unit (rails.hpp).
    virtual void joined(NodeKey key, const wire::Hello& hello, std::string rails) = 0;
    // A page has come from it; its messages follow.
    virtual void heard(NodeKey key) = 0;
    // False: it is invalid, and the node is dropped.
    [[nodiscard]] virtual bool message(NodeKey key, wire::MessageType type,
                                       std::span<const std::byte> body) = 0;
    // A readout unit has lost its connection. True: the run waits for it to come back.
    [[nodiscard]] virtual bool waits_for(NodeKey key) = 0;
    virtual void waits(NodeKey key, std::string_view why) = 0;
    // It has come back in time, and has missed no message.
    virtual void resumed(NodeKey key) = 0;
    // It takes part no more; nothing can be sent to it.
    virtual void left(NodeKey key, std::string_view why) = 0;
  };

  // `system` and `nodes` must outlive it.
  ControlServer(const System& system, NodeEnvironment environment, Nodes& nodes);
  ~ControlServer() override;

  // Listens on all of these rails: nodes connect over any of them. Errors: none works.
  [[nodiscard]] Result<> start(std::span<const net::Url> rails);
  // The addresses of the rails that work.
  [[nodiscard]] std::vector<net::Url> urls() const { return urls_of(listeners_); }

  // The first message to a node that has joined. It is sent again if the connection is lost before
  // the node has got it.
  void welcome(NodeKey key, const wire::Welcome& welcome);

  // NodeOutbox. drop() calls Nodes::left().
  [[nodiscard]] bool takes_part(NodeKey key) const override {
    return peers_[index(key)] != nullptr;
  }
  [[nodiscard]] bool roomy(NodeKey key) override;
  [[nodiscard]] bool readouts_roomy() override;
  [[nodiscard]] std::size_t room_max() const override { return room_max_; }
  void drop(NodeKey key, std::string_view why) override { drop(key, why, true); }

  // As drop(), but the connection ends after all messages to the node.
  void drop_in_order(NodeKey key, std::string_view why) { drop(key, why, false); }
  // Closes all connections. Nodes::left() is not called.
  void close_all();

  // Sends the messages of this turn, and drops nodes that do not read.
  void flush();

  // The launcher reports that the process of this session has died: it does not come back.
  void process_died(std::uint64_t session);
  // Drops readout units whose connection has not come back; returns when to call it again.
  [[nodiscard]] Time end_graces(Time now);
  // Drops nodes that say nothing, or acknowledge nothing, for `dead_after`; returns them.
  std::vector<NodeKey> drop_silent(Time now);
  // The event manager did not run for so long: that time does not count for any node.
  void pass_over(Duration pause, Time now);

  void on_event(net::Transport& transport, net::Event& event) override;

private:
  enum class PeerState : std::uint8_t {
    unidentified, // has not said hello
    connected,
    dying, // connected, and its process has died
    lost // no connection; it may come back
  };
  friend constexpr bool may_follow(PeerState from, PeerState to) {
    switch (to) {
    case PeerState::unidentified: return false;
    case PeerState::connected: return from == PeerState::unidentified || from == PeerState::lost;
    case PeerState::dying: return from == PeerState::connected;
    case PeerState::lost: return from == PeerState::connected || from == PeerState::dying;
    }
    return false;
  }
  struct Peer {
    CheckedState<PeerState> state = PeerState::unidentified;
    NodeKey key;
    net::Link link;
    ControlChannel channel;
    wire::Welcome welcome;
    std::uint64_t session = 0; // of its process
    Time lost_at = never;
    Time heard{};
    Time caught_up_at{}; // when it had last received all that was sent to it
    std::uint64_t acknowledged = 0; // at that time or later
    [[nodiscard]] bool identified() const { return state != PeerState::unidentified; }
  };

  void on_accepted(net::Link link);
  void receive(Peer& peer, const memory::View& page);
  [[nodiscard]] bool take(net::Link link, wire::MessageType type, std::span<const std::byte> body);
  void on_hello(std::unique_ptr<Peer> peer, const wire::Hello& hello, std::string_view text);
  [[nodiscard]] std::optional<std::string>
  wrong_with(const wire::Hello& hello, std::string_view name, std::string_view rails) const;
  void refuse(Peer& peer, Refusal refusal);
  void log_refused(LogLevel level, std::string_view text);
  [[nodiscard]] bool try_resume(Peer& fresh, const wire::Hello& hello);
  void drop_earlier_process(NodeKey key, const wire::Hello& hello, const Peer& fresh);
  void on_closed(net::Link link, std::string_view why);
  void lose(net::Link link, std::string_view why);
  [[nodiscard]] bool is_silent(Peer& peer, Time now) const;

  [[nodiscard]] std::size_t index(NodeKey key) const {
    return key.is_readout() ? key.node : readouts_ + key.node;
  }
  void mark_to_flush(std::size_t index) { to_flush_[index / 64] |= std::uint64_t{1} << index % 64; }
  [[nodiscard]] ControlChannel* channel(NodeKey key);
  [[nodiscard]] std::byte* reserve(NodeKey key, wire::MessageType type, std::size_t size) override;
  void drop(NodeKey key, std::string_view why, bool abort);

  const System& system_;
  const std::uint64_t digest_; // of system_
  NodeEnvironment environment_;
  Nodes& nodes_;
  std::vector<net::Listener> listeners_; // one a rail
  std::size_t room_max_;
  std::size_t readouts_; // how many; their peers come first
  std::vector<std::unique_ptr<Peer>> peers_; // by index(); null: not here
  std::vector<std::unique_ptr<Peer>> unidentified_;
  std::map<net::Link, Peer*> by_link_;
  std::vector<std::uint64_t> to_flush_; // a bit for each of peers_: its channel has something to do
  LogLimiter refusals_; // of peers that are refused, or cut off
};

} // namespace fanin::builder
