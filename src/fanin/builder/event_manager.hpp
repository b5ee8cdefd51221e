// The event manager (EVM): knows which events exist, cuts them into batches, assigns each to a
// builder unit that has room for all of it, and keeps the ledger. It touches no fragment.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <memory_resource>
#include <optional>
#include <string>
#include <vector>

#include "fanin/builder/control_client.hpp"
#include "fanin/builder/fair_clock.hpp"
#include "fanin/builder/ledger.hpp"
#include "fanin/builder/system.hpp"

namespace fanin::builder {

// Is told what a run's record has to say. Called on the loop; must not block for long.
class RunRecorder {
public:
  virtual ~RunRecorder() = default;
  virtual void file(NodeId builder, Incarnation incarnation, const std::string& name) = 0;
  // A batch that was assigned more than once: this attempt counts.
  virtual void winner(EventRange batch, Attempt attempt, NodeId builder,
                      Incarnation incarnation) = 0;
  virtual void summary(const RunSummary& summary) = 0;
};

// How often it looks for nodes that have fallen silent.
inline constexpr Duration alive_period = std::chrono::milliseconds{250};

struct EventManagerOptions {
  net::Url url;                     // where to listen; port 0 works
  RunRecorder* recorder = nullptr;  // may be null
  // Called once, on the loop; must not destroy the event manager.
  std::function<void(const RunSummary&)> on_end;
  // A builder unit was given up because it says nothing: frozen, it still holds pages of others.
  std::function<void(NodeId)> on_silent; // may be empty
};

// Thread: its loop. Registered there as a service for its lifetime.
class EventManager final : public net::Handler, public net::Service {
public:
  EventManager(const System& system, EventManagerOptions options, NodeEnvironment environment);
  ~EventManager() override;

  // Errors: the address cannot be listened on.
  [[nodiscard]] Result<> start();
  [[nodiscard]] net::Url url() const;

  // Ends the run in good order: what was triggered or announced is still built.
  void stop();
  // Ends it now; what is not built is lost, and the ledger says so.
  void stop_now(std::string why);

  // Whoever watches over the process of this session (wire::Hello) saw it die: its connection will
  // not come back.
  void process_died(std::uint64_t session);

  [[nodiscard]] bool running() const { return state_ == State::running; }
  [[nodiscard]] bool stopping() const { return stop_wanted_; } // or has been
  [[nodiscard]] bool ended() const { return state_ == State::ended; }
  // For people, when a run does not go on or does not end: what is missing for that.
  [[nodiscard]] std::string waiting_for() const;
  // Of builder units' capacity and transfer windows; 0 when nothing is being built.
  [[nodiscard]] std::uint64_t bytes_reserved() const;
  // How often it has gone through announcements to find the next batch.
  [[nodiscard]] std::uint64_t looks_for_batches() const { return looks_for_batches_; }
  // As of now.
  [[nodiscard]] const RunSummary& summary();

  void on_event(net::Transport& transport, net::Event& event) override;
  bool poll() override;

private:
  enum class State : std::uint8_t { waiting, running, pausing, draining, finishing, ended };

  struct AnnouncePoint {
    EventNumber end = 0;
    std::uint64_t bytes = 0; // announced for events below `end`, since the incarnation began
  };
  struct Announced {
    EventRange range;
    std::vector<std::deque<EventRange>> absent; // as Readout::absent
  };
  struct Peer { // a connection that is or may become a node
    net::Link link; // none: lost, and it may come back for a while
    ControlChannel channel;
    std::uint64_t session = 0;
    Time lost_at = never; // its connection
    bool died = false; // its process: it does not come back
    wire::Role role{};
    NodeId node = 0;
    bool known = false; // has said hello
    Time heard{};
    Time listening{}; // when it was last not behind with what it is told
    std::uint64_t acknowledged = 0; // at that time or later
  };
  struct Readout {
    std::unique_ptr<Peer> peer; // null: down
    Incarnation incarnation = 0;
    Incarnation starts = 0;
    wire::Welcome welcome; // of this incarnation
    std::uint64_t memory = 0; // bytes in which it keeps what is not cleared
    std::uint64_t metadata = 0; // bytes for the metadata of that, for each source
    bool announced_any = false;
    bool final = false;
    bool paused = false;
    bool finished = false;
    wire::Paused paused_at;
    EventNumber limit_said = 0; // with a trigger
    EventNumber first = 0;
    EventNumber end = 0; // announced below
    std::uint64_t bytes = 0; // announced in all
    std::uint64_t floor_bytes = 0; // announced below the frontier
    bool silent = false; // all its sources were given up
    Duration announced_at{}; // something, last, or was held back; fair_ then
    bool held_back = false; // has more, and waits for others or for builder units
    std::string waits_for; // what it says of its sources, for people
    std::uint64_t in_a_row = 0; // numbers announced since they last jumped by a window
    std::optional<Duration> overtaken_since; // another one is more than a window ahead
    bool overtaken_said = false;
    bool passed_over = false; // has announced nothing since: not asked whether that one is right
    std::uint32_t held = 0; // the last Held it sent
    EventNumber held_event = 0; // its number
    bool held_waits = false; // it may hear more of it
    EventNumber held_told = 0; // the horizon, when it was last told of it
    bool held_ended = false; // all its sources have come to their end
    std::deque<AnnouncePoint> points; // beyond the frontier
    std::size_t sources = 0; // how many it has
    // By source, ascending; of events not decided yet. The last ones: no source sent anything.
    std::vector<std::deque<EventRange>> absent;
    // What incarnations that died had announced beyond the frontier: those events exist, and their
    // fragments are lost.
    std::vector<Announced> past;
    std::vector<std::vector<SourceLedger>> ledgers; // by incarnation - 1, then source
    std::vector<std::vector<std::vector<std::uint64_t>>> dropped; // likewise, then reason
    Time failing_since = never; // its data do not come, and nothing of it was built since
    Time barred_until{}; // given up because it reaches nobody
    wire::NodeCounters counters;
  };
  struct Builder {
    std::unique_ptr<Peer> peer;
    Incarnation incarnation = 0;
    Incarnation starts = 0;
    std::string rails; // as readout units are told (rails.hpp)
    bool finished = false;
    bool failed = false; // its storage, and it has left
    std::uint64_t capacity = 0;
    std::uint64_t reserved = 0; // of the capacity; returned in the order of assignment
    std::uint64_t metadata = 0; // reserved at readout units, likewise
    std::uint64_t under_way = 0; // of the transfer window
    struct Reservation {
      EventNumber first = 0;
      std::uint64_t bytes = 0;
      std::uint64_t metadata = 0;
      bool done = false;
    };
    std::deque<Reservation> reservations;
    std::uint64_t returned = 0; // reservations before those
    struct Way { // from a readout unit
      Incarnation incarnation = 0; // whose data can come; 0: none
      Time broken_since{}; // if it is, or told to take another
      Duration patience{}; // until it is told again: longer each time, for slow networks
    };
    std::vector<Way> ways; // by readout unit
    bool reached = false; // by all readout units that are here
    bool lagging = false; // pull: readout units are told what they would be asked for
    std::uint64_t events = 0;
    wire::NodeCounters counters;
    std::vector<std::string> files; // of the current incarnation
  };
  struct Batch { // assigned, not built yet
    EventRange range;
    Attempt attempt = 0;
    NodeId builder = 0;
    Incarnation builder_incarnation = 0; // 0: waits to be assigned again
    std::uint64_t epoch = 0;
    std::uint64_t bytes = 0;
    std::uint64_t reservation = 0; // its builder unit's, counted from the first
    bool received = false;
    std::optional<NodeId> handed_back; // by this builder unit; another one is better
    std::vector<wire::MissingRun> missing; // said so far
    std::vector<wire::BadFragment> bad;
    std::vector<wire::Gap> gaps; // in it, and right before it
    std::vector<wire::MissingRun> lost; // of earlier incarnations
  };
  using Batches = std::pmr::map<EventNumber, Batch>;

  // connections
  void on_hello(std::unique_ptr<Peer> peer, const wire::Hello& hello, std::string_view text);
  void on_failed(NodeId node, const wire::Failed& failed, const std::string& why);
  void refuse(Peer& peer, std::string reason, bool for_now = false,
              LogLevel level = LogLevel::warning);
  void readout_up(std::unique_ptr<Peer> peer, const wire::Hello& hello);
  void builder_up(std::unique_ptr<Peer> peer, std::uint64_t capacity, std::string rails);
  void readout_down(NodeId node, std::string_view why);
  void builder_down(NodeId node, std::string_view why);
  // `for_now`: only the connection is lost; a readout unit may come back over another one.
  void peer_lost(net::Link link, std::string_view why, bool for_now = false);
  [[nodiscard]] bool try_resume(Peer& fresh, const wire::Hello& hello);
  void leave_to_process(const wire::Hello& hello, const Peer& fresh);
  void end_graces();
  bool on_reached(NodeId node, const wire::Reached& reached);
  void find_reached();
  void watch_ways();
  void pass_over_pauses();
  void give_up_unreachable();
  void give_up_path(NodeId node, std::string_view why);
  void publish_members();
  Peer* find_peer(net::Link link);
  void receive(Peer& peer, const memory::View& page);
  bool on_message(Peer& peer, wire::MessageType type, std::span<const std::byte> body);
  void check_alive();

  // events
  void start_if_ready();
  void trigger();
  void tell_triggered();
  [[nodiscard]] Time trigger_time(EventNumber event) const;
  [[nodiscard]] Time next_trigger_tick() const;
  bool on_announce(Readout& readout, const wire::Announce& announce,
                   std::span<const wire::AbsentRun> absent);
  [[nodiscard]] bool can_be_absent(const Readout& readout, EventRange range,
                                   std::span<const wire::AbsentRun> absent) const;
  void note_dropped(Readout& readout, EventRange range, std::span<const wire::AbsentRun> absent);
  void on_begin(Readout& readout);
  void find_frontier();
  [[nodiscard]] bool apart();
  [[nodiscard]] EventNumber agreed_horizon() const;
  [[nodiscard]] const Readout* overtaker(const Readout& readout) const;
  void pass_over_quiet();
  [[nodiscard]] std::string overtaken(const Readout& readout, const Readout& by) const;
  void on_held(Readout& readout, const wire::Held& held);
  void answer_held();
  void add_gap(EventRange gap);
  [[nodiscard]] EventNumber present_from(EventNumber event, EventNumber end) const;
  [[nodiscard]] EventNumber gap_from(EventNumber event, EventNumber end) const;
  [[nodiscard]] EventNumber count_present(EventRange range) const;
  bool skip_gap(EventNumber end);
  void move_frontier(EventNumber event);
  [[nodiscard]] bool alone(const Readout& readout) const;
  [[nodiscard]] bool holds_all_back(const Readout& readout) const;
  [[nodiscard]] bool held_by_another(const Readout& readout) const;
  void say_horizon(Readout& readout, EventNumber horizon);
  [[nodiscard]] std::vector<wire::Gap> gaps_in(EventRange& range) const;
  [[nodiscard]] std::vector<wire::MissingRun> lost_in(EventRange range) const;
  static void add_lost(std::vector<wire::MissingRun>& lost, EventRange range, SourceId source,
                       EventRange known, const std::deque<EventRange>& absent);
  static void say_lost(ControlChannel& channel, std::vector<wire::MissingRun>& lost);
  void leave_behind(NodeId node);
  void send_to_builder(Builder& builder, const Batch& batch, wire::Assign assign);
  bool on_counters(Peer& peer, const wire::NodeCounters& counters, wire::MessageReader& reader);
  void on_received(Builder& builder, const wire::Received& received);
  bool on_built(Builder& builder, NodeId node, wire::MessageReader& reader);
  void account(const Batch& batch, const wire::Built& built);
  void account_sources(const Batch& batch, std::uint64_t events);
  bool on_hand_back(Builder& builder, NodeId node, const wire::HandBack& back);
  void on_uncut(Readout& readout, const wire::Uncut& uncut);
  void take_back(Batch& batch);
  void release(Builder& builder, const Batch& batch);
  [[nodiscard]] EventNumber decided() const;
  void leave_epoch(std::uint64_t epoch);
  void summarise_nodes();

  // assignment
  void assign_batches();
  bool assign_again();
  [[nodiscard]] std::size_t builders_up() const;
  [[nodiscard]] bool hopeless() const;
  struct Cut {
    EventRange range;
    std::uint64_t bytes = 0;
  };
  [[nodiscard]] EventNumber assignable_end() const;
  [[nodiscard]] Cut next_cut(EventNumber end) const;
  [[nodiscard]] std::uint64_t announced_bytes(const Readout& readout, EventNumber event) const;
  struct Share {
    std::uint64_t memory = 0;
    std::uint64_t metadata = 0;
  };
  [[nodiscard]] Share fair_share() const;
  [[nodiscard]] std::optional<NodeId> choose(const Cut& cut, const Batch* again);
  [[nodiscard]] bool has_room(const Builder& builder, const Cut& cut, bool again) const;
  [[nodiscard]] bool readouts_roomy();
  void send_assignment(Batch& batch, NodeId node);
  [[nodiscard]] static wire::Assign assignment_of(const Batch& batch);
  void watch_laggards();

  // end
  void pause_or_drain();
  // Sources are read up to `read`.
  void drain_until(EventNumber end, EventNumber read);
  void drain_where_paused();
  void finish();
  void finish_if_drained();
  void end();
  void flush_peers();
  template <class Body>
  void tell_readouts(const Body& body) {
    for (auto& readout : readouts_) {
      if (readout.peer) readout.peer->channel.append(body);
    }
  }

  const System& system_;
  const std::uint64_t digest_; // of system_
  const SourceIndex sources_;
  EventManagerOptions options_;
  NodeEnvironment environment_;
  net::Transport* transport_ = nullptr;
  net::ListenerId listener_ = net::ListenerId::none;
  State state_ = State::waiting;
  bool stop_wanted_ = false;

  std::vector<std::unique_ptr<Peer>> strangers_; // have not said hello yet
  std::vector<Readout> readouts_;
  std::vector<Builder> builders_;
  bool members_changed_ = false;
  bool ways_changed_ = false;
  Time unreached_since_ = never; // no builder unit is reached by all
  std::uint64_t epoch_ = 0;
  struct Members {
    std::vector<Incarnation> readouts;
    std::uint64_t batches = 0; // assigned with them
  };
  std::map<std::uint64_t, Members> members_; // by epoch, as long as a batch needs it

  EventNumber frontier_ = 0; // events below are assigned
  bool frontier_known_ = false;
  EventNumber horizon_ = 0; // the furthest announcement
  std::optional<wire::Gap> skipped_; // right before the frontier, for the next batch to tell of
  std::string apart_; // readout units that begin too far from each other; empty: none
  EventNumber first_event_ = 0;
  std::pmr::unsynchronized_pool_resource memory_;
  Batches batches_{&memory_};
  std::deque<EventNumber> again_; // to be assigned anew
  std::size_t next_builder_ = 0; // round robin
  bool no_room_ = false; // nobody had room for the next batch, and nothing has changed since
  std::uint64_t looks_for_batches_ = 0;
  std::uint64_t together_bytes_ = 0; // assigned to one builder unit in a row

  EventNumber limit_ = ~EventNumber{0}; // read up to here, without a trigger
  EventNumber triggered_ = 0;
  Time trigger_start_{};
  bool trigger_waits_ = false; // its window is full
  std::uint64_t bytes_per_event_ = 0; // of the latest batch; 0: none yet
  net::Timer trigger_tick_;
  net::Timer alive_tick_;
  FairClock clock_{alive_period}; // for all others: it looks with alive_tick_
  Duration fair_{}; // when it looked last
  Time looked_ = never;
  net::Timer grace_tick_; // runs while a readout unit has lost its connection
  net::Timer laggard_tick_;
  EventNumber laggard_horizon_ = 0; // the horizon when laggard_tick_ last fired
  Time started_at_ = never;
  Time last_commit_{};
  RunSummary summary_;
  std::vector<std::uint64_t> missing_of_; // by source, of the batch that is accounted
  std::vector<storage::MissingCounts> missing_; // by source, of all that was built
};

} // namespace fanin::builder
