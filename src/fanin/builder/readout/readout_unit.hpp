// The readout unit (RU): reads its sources, announces to the event manager what it holds, and sends
// each batch to the builder unit that it was assigned to. It keeps what it has sent until the event
// manager clears it, so that the death of a builder unit loses nothing.
//
// It passes each message of the event manager to the type that handles it, and the answers to its
// connections: SourceGroup (the sources), Announcer (what is announced), HeldReport (numbers that
// may be wrong), AssignmentQueue and RetainedBatches (what is assigned and kept), UncutWatch (what
// nobody asks for), BuilderLinks (what is sent).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "fanin/base/state.hpp"
#include "fanin/builder/control/control_client.hpp"
#include "fanin/builder/metadata.hpp"
#include "fanin/builder/readout/announcer.hpp"
#include "fanin/builder/readout/assignment_queue.hpp"
#include "fanin/builder/readout/builder_links.hpp"
#include "fanin/builder/readout/held_report.hpp"
#include "fanin/builder/readout/retained_batches.hpp"
#include "fanin/builder/readout/run_view.hpp"
#include "fanin/builder/readout/source_group.hpp"
#include "fanin/builder/readout/uncut_watch.hpp"
#include "fanin/builder/system.hpp"

namespace fanin::builder {

struct ReadoutOptions {
  NodeId node = 0;
  std::vector<net::Url> event_manager; // rails: where it listens
  std::vector<ReadoutInput> inputs; // in the order of System::sources_of(node)
  memory::PagePool* metadata_pool = nullptr; // headers and tables of what was sent and not cleared
  Duration give_up_after = std::chrono::seconds{10};
  // The run is over for this node; an error unless it ended in good order. Called once, on the
  // loop; must not destroy the node.
  std::function<void(const Result<>&)> on_end;
};

// Thread: its loop. Registered there as a service for its lifetime.
class ReadoutUnit final : public net::Service {
public:
  ReadoutUnit(const System& system, ReadoutOptions options, NodeEnvironment environment);
  ~ReadoutUnit() override;

  // Connects to the event manager.
  void start();

  // The run in which it takes part; 0: none now.
  [[nodiscard]] RunNumber run() const { return state_ == State::joined ? run_ : 0; }
  [[nodiscard]] bool too_late() const { return control_->too_late(); } // for the run
  // It is connected to the event manager now.
  [[nodiscard]] bool connected() const { return control_->connected(); }
  [[nodiscard]] const wire::NodeCounters& counters();
  [[nodiscard]] std::uint64_t fragments_read() const; // written into the queues
  struct SourceRead {
    std::uint64_t fragments = 0;
    std::uint64_t bytes = 0; // payload
  };
  // Written into the queue of one source, of all runs. In the order of the inputs.
  [[nodiscard]] SourceRead read_of(std::size_t source) const;
  // Sources that could not go on, with the reason.
  [[nodiscard]] std::vector<std::pair<SourceId, std::string>> failed_sources() const;

  // The schedules of shaping, one for each rail; without shaping none.
  [[nodiscard]] std::span<const shaping::Schedule> schedules() const { return links_->schedules(); }

  bool poll() override;

private:
  class Readable; // puts a source's descriptor into the loop, while it may be read
  enum class State : std::uint8_t {
    created,
    away, // connecting to the event manager, or waiting for its welcome
    joined, // takes part in a run
    ended
  };
  friend constexpr bool may_follow(State from, State to) {
    switch (to) {
    case State::created: return false;
    case State::away: return from == State::created || from == State::joined;
    case State::joined: return from == State::away;
    case State::ended: return from != State::ended;
    }
    return false;
  }

  // what the event manager says; false: it is invalid
  bool on_control(wire::MessageType type, std::span<const std::byte> body);
  bool on_welcome(const wire::Welcome& welcome);
  bool on_builder_up(wire::MessageReader& reader);
  bool on_builder_down(const wire::BuilderDown& down);
  bool on_reconnect(const wire::Reconnect& reconnect);
  bool on_limit(const wire::Limit& limit);
  bool on_pause(const wire::Pause& pause);
  bool on_horizon(const wire::Horizon& horizon);
  bool on_reset_reply(const wire::ResetReply& reply);
  void begin_run();
  bool on_assign(const wire::Assign& assign);
  bool on_clear(const wire::Clear& clear);

  // what it is told
  [[nodiscard]] const RunView& view();
  void begin_at(EventNumber first, bool given_up);
  void start_sources(Time now);
  bool watch_readiness(Time now);
  void report_held();
  void request_reset();
  void ask_for_uncut(Time now);
  void announce(bool idle, Time now);
  void answer();
  void send_status();
  std::span<const wire::SourceCounters> count();

  bool read_sources(Time now);

  // batches
  bool try_assign(const wire::Assign& assign);
  bool retry_waiting(); // true: one was taken
  void release_cut();

  void arm_tick(Time now);
  void end(Result<> result);
  void reset();

  const System& system_;
  ReadoutOptions options_;
  NodeEnvironment environment_;
  SourceGroup sources_;
  std::vector<std::unique_ptr<Readable>> readables_;
  std::unique_ptr<ControlClient> control_;
  net::Timer tick_; // deadlines of announcing and of silent sources, wake times of sources
  net::Timer status_tick_;

  CheckedState<State> state_ = State::created;
  RunNumber run_ = 0; // while joined
  std::uint64_t seal_key_ = 0; // of requests, as the event manager has said
  std::optional<wire::Welcome> to_start_; // with it, the sources, when they are ready
  bool held_ = false; // the event manager has not released the run
  bool said_ready_ = false; // to the event manager
  RunView view_; // without the announced number: view() adds it
  bool reset_requested_ = false; // and not answered
  bool run_begun_ = false; // the run has an event, as far as is known here
  bool pause_wanted_ = false; // by the event manager, and not answered
  bool finish_wanted_ = false; // likewise

  Announcer announcer_;
  HeldReport held_report_;
  UncutWatch uncut_;
  AssignmentQueue waiting_;
  std::optional<RetainedBatches> retained_;
  std::optional<BuilderLinks> links_;
  wire::NodeCounters counters_;
};

} // namespace fanin::builder
