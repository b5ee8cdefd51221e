// The builder unit (BU): collects the data blocks of the batches that it was assigned, checks them,
// and gives the built events to storage. It reports what is committed to the event manager, which
// decides whether that counts.
//
// ReadoutLinks has the connections, Assembler the batches under construction, OverdueBlocks finds
// what does not come, PageShortage what takes all pages, StorageQueue brings batches into storage,
// and CommitReporter says what became of them.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "fanin/base/log_limiter.hpp"
#include "fanin/base/state.hpp"
#include "fanin/builder/building/assembler.hpp"
#include "fanin/builder/building/build_capacity.hpp"
#include "fanin/builder/building/commit_reporter.hpp"
#include "fanin/builder/building/decided_order.hpp"
#include "fanin/builder/building/overdue_blocks.hpp"
#include "fanin/builder/building/page_shortage.hpp"
#include "fanin/builder/building/readout_links.hpp"
#include "fanin/builder/building/readout_members.hpp"
#include "fanin/builder/building/status_reporter.hpp"
#include "fanin/builder/building/storage_queue.hpp"
#include "fanin/builder/control/control_client.hpp"
#include "fanin/builder/deadline_clock.hpp"
#include "fanin/builder/system.hpp"
#include "fanin/storage/event_sink.hpp"

namespace fanin::builder {

struct BuilderOptions {
  NodeId node = 0;
  std::vector<net::Url> event_manager; // rails: where it listens
  std::vector<net::Url> data; // rails where to listen for readout units (rails.hpp); port 0 works
  memory::PagePool* receive_pool = nullptr; // pages of System::data_page
  // Of those, held by a transport that posts receives beforehand, or kept for batches that are set
  // aside.
  std::uint32_t reserved_pages = 0;
  Duration give_up_after = std::chrono::seconds{10};
  bool failure_ends_run = false; // of storage; else the others go on without this unit
  // A new sink, with new files, for each incarnation.
  std::function<Result<std::unique_ptr<storage::EventSink>>(const wire::Welcome&)> make_sink;
  // The run is over for this node; an error unless it ended in good order. Called once, on the
  // loop; must not destroy the node.
  std::function<void(const Result<>&)> on_end;
};

// Thread: its loop. Registered there as a service for its lifetime. It stays one type of more than
// 400 lines, since it only connects its parts, and what each reports may change the state of all.
class BuilderUnit final : public net::Service, private ReadoutLinks::Receiver {
public:
  BuilderUnit(const System& system, BuilderOptions options, NodeEnvironment environment);
  ~BuilderUnit() override;

  // Errors: the data address cannot be listened on.
  [[nodiscard]] Result<> start();

  // It is connected to the event manager now.
  [[nodiscard]] bool connected() const { return control_ && control_->connected(); }
  [[nodiscard]] bool too_late() const { return control_ && control_->too_late(); } // for the run
  [[nodiscard]] const wire::NodeCounters& counters();
  [[nodiscard]] std::vector<std::string> files() const { return storage_.files(); }
  // Human-readable: what storage waits for; empty: unknown, or nothing.
  [[nodiscard]] std::string storage_waits_for() const { return storage_.waits_for(); }

  // The grants of shaping, one for each rail; without shaping none.
  [[nodiscard]] std::span<const shaping::Grants> grants() const { return links_.grants(); }

  bool poll() override;

private:
  enum class State : std::uint8_t {
    waiting, // for the event manager's welcome
    building,
    finishing, // all is built; storage writes what it holds
    ended
  };
  friend constexpr bool may_follow(State from, State to) {
    switch (to) {
    case State::building:
    case State::ended: return from == State::waiting;
    case State::finishing: return from == State::building;
    case State::waiting: return from != State::ended;
    }
    return false;
  }

  // ReadoutLinks::Receiver
  void block(const Lane& lane, const net::Event& event) override;
  void data_opened(const Lane& lane) override { overdue_.begins_again(lane); }
  void data_refused(const Lane& lane) override;
  void connections_changed() override;
  void requests_opened(NodeId readout) override;
  [[nodiscard]] Incarnation incarnation_of(NodeId readout) const override {
    return members_.incarnation(readout);
  }

  // control
  [[nodiscard]] bool on_control(wire::MessageType type, std::span<const std::byte> body);
  [[nodiscard]] bool on_welcome(const wire::Welcome& welcome);
  [[nodiscard]] bool on_members(const wire::Members& members,
                                std::span<const Incarnation> incarnations);
  [[nodiscard]] bool on_assign(const wire::Assign& assign, wire::MessageReader& reader);
  [[nodiscard]] bool on_finish();
  void on_lost();
  [[nodiscard]] bool working() const {
    return state_ == State::building || state_ == State::finishing;
  }

  // batches
  void decide(Assembly& assembly);
  void decide_without_lost(Assembly& assembly);
  void on_commit(const storage::Committed& committed);
  void on_set_aside(std::uint64_t ticket);
  void hand_back(Assembly& assembly, std::optional<NodeId> blamed);
  [[nodiscard]] Duration deadline_clock();
  void watch_blocks();
  void watch_pages();
  [[nodiscard]] std::vector<Lane> member_lanes() const;
  void give_back(const Lane& lane, std::string_view what);

  // reports and the end
  void send_requests();
  void report();
  template <class Message>
  bool send_counters();
  [[nodiscard]] bool report_failure();
  [[nodiscard]] bool send_failed(std::string_view why); // false: there is no room
  void finish_if_written();
  void reset();
  void end(Result<> result);

  const System& system_;
  const SourceIndex sources_;
  BuilderOptions options_;
  NodeEnvironment environment_;
  std::unique_ptr<ControlClient> control_;
  net::Timer status_tick_;
  net::Timer block_tick_; // runs while there are assemblies

  CheckedState<State> state_ = State::waiting;
  Incarnation incarnation_ = 0;
  RunNumber run_ = 0;
  ReadoutMembers members_;
  ReadoutLinks links_;
  Assembler assembler_;
  DecidedOrder order_;
  StorageQueue storage_;
  CommitReporter reporter_;
  StatusReporter status_;
  OverdueBlocks overdue_;
  DeadlineClock clock_;
  PageShortage shortage_;
  LogLimiter damage_lines_;
  LogLimiter not_fitting_lines_;
  LogLimiter shortage_lines_;
  bool failure_reported_ = false; // of storage
  wire::NodeCounters counters_;
};

} // namespace fanin::builder
