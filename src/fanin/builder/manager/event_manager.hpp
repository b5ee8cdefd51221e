// The event manager (EVM): knows which events exist, cuts them into batches, assigns each to a
// builder unit that has room for all of it, and keeps the ledger. It touches no fragment.
//
// It passes what nodes say to the types that handle it, and tells nodes what follows: ControlServer
// (connections), Liveness (who is dead), NodeList (who is here), DataPaths and PathWatch (who
// reaches whom), RunPhase and Reading (the life of the run), KnownEvents (which events exist),
// Dispatcher (who builds them) and Accounts (what became of them).
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fanin/builder/control/control_server.hpp"
#include "fanin/builder/ledger.hpp"
#include "fanin/builder/manager/accounts.hpp"
#include "fanin/builder/manager/data_paths.hpp"
#include "fanin/builder/manager/dispatcher.hpp"
#include "fanin/builder/manager/known_events.hpp"
#include "fanin/builder/manager/liveness.hpp"
#include "fanin/builder/manager/membership.hpp"
#include "fanin/builder/manager/node_log.hpp"
#include "fanin/builder/manager/path_watch.hpp"
#include "fanin/builder/manager/reading.hpp"
#include "fanin/builder/manager/refusal_watch.hpp"
#include "fanin/builder/manager/run_phase.hpp"
#include "fanin/builder/manager/trigger.hpp"
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
  std::vector<net::Url> urls; // rails where to listen; port 0 works
  std::uint64_t run_id = 0; // as in wire::Welcome
  bool run_id_is_shared = false; // likewise
  bool held = false; // the run does not begin before release()
  RunRecorder* recorder = nullptr; // may be null
  // Called once, on the loop; must not destroy the event manager.
  std::function<void(const RunSummary&)> on_end;
  // A node was given up because it says nothing: frozen, it still holds pages or connections of
  // others.
  std::function<void(const NodeKey&)> on_silent; // may be empty
};

// It stays one type of 400 lines, since what a node says may change the run in each respect.
// Thread: its loop. Registered there as a service for its lifetime.
class EventManager final : public net::Service, private ControlServer::Nodes {
public:
  EventManager(const System& system, EventManagerOptions options, NodeEnvironment environment);
  ~EventManager() override;
  void set_recorder(RunRecorder* recorder) { options_.recorder = recorder; } // before the run

  // Errors: the address cannot be listened on.
  [[nodiscard]] Result<> start();
  [[nodiscard]] std::vector<net::Url> urls() const { return server_.urls(); }

  // The run may begin, and sources are started.
  void release();
  [[nodiscard]] bool held() const { return options_.held; }
  // Ends the run in good order: what was triggered or announced is still built.
  void stop();
  // Ends it now; what is not built is lost, and the ledger says so.
  void stop_now(std::string why);

  // The launcher has seen the process of this session (wire::Hello) die: its connection will not
  // come back.
  void process_died(std::uint64_t session) {
    liveness_.process_died(session, environment_.loop->now());
  }

  [[nodiscard]] bool running() const { return phase_.is(Phase::running); }
  [[nodiscard]] bool begun() const { return phase_.building(); } // and is not built yet
  // For what it waited when it was stopped before it began; empty: it was not.
  [[nodiscard]] const std::string& waited_for() const { return waited_for_; }
  [[nodiscard]] bool stopping() const { return stop_wanted_; } // or has been
  [[nodiscard]] bool ended() const { return phase_.is(Phase::ended); }
  // Human-readable reason why the run makes no progress or does not end.
  [[nodiscard]] FANIN_INTERNAL_API std::string waiting_for() const;
  // Of builder units' capacity and transfer windows; 0 when nothing is being built.
  [[nodiscard]] std::uint64_t bytes_reserved() const {
    return dispatcher_.capacity().bytes_reserved();
  }
  // A builder unit has all data of a batch, and has not stored it yet.
  [[nodiscard]] bool storing() const;
  // How often it has gone through announcements to find the next batch.
  [[nodiscard]] std::uint64_t batches_examined() const { return dispatcher_.examined(); }
  // As of now.
  [[nodiscard]] FANIN_INTERNAL_API const RunSummary& summary();

  bool poll() override;

private:
  // ControlServer::Nodes
  std::optional<ControlServer::Refusal> refusal(NodeKey key) override;
  void joined(NodeKey key, const wire::Hello& hello, std::string rails) override;
  void heard(NodeKey key) override;
  bool message(NodeKey key, wire::MessageType type, std::span<const std::byte> body) override;
  bool waits_for(NodeKey key) override;
  void waits(NodeKey key, std::string_view why) override;
  void resumed(NodeKey key) override;
  void left(NodeKey key, std::string_view why) override;

  // nodes
  void readout_joined(NodeId node, const wire::Hello& hello);
  void builder_joined(NodeId node, const wire::Hello& hello, std::string rails);
  void readout_left(NodeId node, std::string_view why);
  [[nodiscard]] std::string_view after_loss_of_readout() const;
  [[nodiscard]] std::string after_loss_of_builder(std::uint64_t events) const;
  void builder_left(NodeId node, std::string_view why);
  [[nodiscard]] bool readout_message(NodeId node, wire::MessageType type,
                                     std::span<const std::byte> body);
  [[nodiscard]] bool builder_message(NodeId node, wire::MessageType type,
                                     std::span<const std::byte> body);
  [[nodiscard]] bool on_finished(NodeKey key);
  void on_failed(NodeId builder, const wire::Failed& failed, const std::string& why);
  void check_alive();
  void end_graces();
  [[nodiscard]] bool on_built(NodeId builder, wire::MessageReader& reader);
  [[nodiscard]] bool on_hand_back(NodeId builder, const wire::HandBack& back);
  // the life of the run
  [[nodiscard]] bool all_needed_are_here() const;
  void start_if_ready();
  void watch_laggards();
  [[nodiscard]] bool on_announce(NodeId node, wire::MessageReader& reader);
  void finish_if_built();
  void finish();
  void end();
  [[nodiscard]] bool no_builder_left() const;

  const System& system_;
  const SourceIndex sources_;
  EventManagerOptions options_;
  NodeEnvironment environment_;

  RunPhase phase_;
  bool stop_wanted_ = false;
  std::string waited_for_;
  std::uint64_t seal_key_; // of assignments; readout units get it
  Trigger trigger_;

  NodeList readouts_;
  NodeList builders_;
  std::vector<std::string> rails_; // by builder unit, as readout units are told (rails.hpp)
  std::vector<std::string> storage_waits_for_; // by builder unit, as it says
  NodeLog node_log_;
  DataPaths paths_;
  Accounts accounts_;
  ControlServer server_;
  Liveness liveness_; // checked with alive_tick_
  PathWatch path_watch_;
  RefusalWatch refusal_watch_;
  KnownEvents events_;
  Dispatcher dispatcher_;
  Reading reading_;

  net::Timer alive_tick_;
  net::Timer grace_tick_; // runs while a readout unit has lost its connection
  net::Timer laggard_tick_;
  net::Timer silent_tick_; // runs while a silent readout unit may be behind
};

} // namespace fanin::builder
