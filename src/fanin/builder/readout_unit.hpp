// The readout unit (RU): reads its sources, announces to the event manager what it holds, and sends
// each batch to the builder unit that it was assigned to. It keeps what it has sent until the event
// manager clears it, so that the death of a builder unit loses nothing. RetainedBatches has what it
// keeps, BuilderLinks the connections.
#pragma once

#include <array>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "fanin/builder/builder_links.hpp"
#include "fanin/builder/control_client.hpp"
#include "fanin/builder/deadline_clock.hpp"
#include "fanin/builder/metadata.hpp"
#include "fanin/builder/read_rest.hpp"
#include "fanin/builder/retained_batches.hpp"
#include "fanin/builder/system.hpp"
#include "fanin/source/source.hpp"

namespace fanin::builder {

struct ReadoutInput {
  std::unique_ptr<source::Source> source;
  memory::PagePool* pool = nullptr; // of this source alone
  source::FragmentQueueOptions queue;
};

struct ReadoutOptions {
  NodeId node = 0;
  net::Url event_manager;
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

  void start();

  // That it takes part in; 0: none now.
  [[nodiscard]] RunNumber run() const { return incarnation_ == 0 ? 0 : run_; }
  // To the event manager, now.
  [[nodiscard]] bool connected() const { return control_->connected(); }
  [[nodiscard]] const wire::NodeCounters& counters();
  [[nodiscard]] std::uint64_t fragments_read() const; // written into the queues
  // Sources that could not go on, with the reason.
  [[nodiscard]] std::vector<std::pair<SourceId, std::string>> failed_sources() const;

  // Of shaping; null: there is none.
  [[nodiscard]] const shaping::Schedule* schedule() const { return links_->schedule(); }

  bool poll() override;

private:
  struct Input {
    Input(ReadoutInput&& input, Duration longest_rest)
        : source(std::move(input.source)),
          pool(input.pool),
          queue(input.queue, *input.pool),
          rest(longest_rest) {}
    std::unique_ptr<source::Source> source;
    memory::PagePool* pool;
    source::FragmentQueue queue;
    source::ReadResult last;
    ReadRest rest;
    std::array<std::uint64_t, wire::drop_reasons> dropped_before{}; // by earlier incarnations
    std::uint32_t pages_left = 0; // in the pool, after it was last read
    bool gives_more = false; // the last read left something, and not all of it was dropped
    bool far_ahead = false; // read further than builder units take
    bool unclear = false; // its queue, when it was read last: it waits until others are asked
    std::optional<Duration> unclear_since; // on the fair clock
    std::optional<Duration> behind_since; // silent while others went on; on the fair clock
    EventNumber behind_until = 0;
    std::uint64_t written = 0; // when it was last looked at
    EventNumber come_to = 0; // likewise
    std::optional<Duration> accepted_at; // its last fragment, as far as was looked
    std::optional<Duration> slow_since; // it alone holds the others back
    bool slow_said = false;
    bool silent = false; // it was given up, and has sent nothing since that is waited for
    bool away = false; // it was given up, and nothing of it was taken since
    bool given_up_slow = false; // the last time
    bool trails_said = false;
    std::uint64_t late_before = 0; // its late fragments, when it was given up
    Duration moved_at{}; // it last gave a fragment, or had one to give; on the fair clock
    std::optional<Duration> overtaken_since; // another one is more than a window ahead
    bool overtaken_said = false;
    bool passed_over = false; // has been quiet since: not asked whether the other one is right
    [[nodiscard]] bool asked() const { return !done() && !silent && !passed_over; }
    [[nodiscard]] bool done() const {
      return last.state == source::ReadState::finished || last.state == source::ReadState::failed;
    }
  };
  class Readable; // puts a source's descriptor into the loop, while it may be read

  // control
  bool on_control(wire::MessageType type, std::span<const std::byte> body);
  bool on_welcome(const wire::Welcome& welcome);
  bool on_assign(const wire::Assign& assign);
  bool try_assign(const wire::Assign& assign);
  void retry_waiting();
  void on_clear(const wire::Clear& clear);
  void on_lost();
  void end(Result<> result);
  void reset();

  // reading
  [[nodiscard]] bool far_ahead(Input& input) const;
  [[nodiscard]] const std::string& name_of(const Input& input) const; // of its source
  [[nodiscard]] source::OtherSources whole_run();
  [[nodiscard]] source::OtherSources others_of(const Input& input);
  [[nodiscard]] bool others_live(const Input& input) const;
  [[nodiscard]] bool apart();
  bool read_inputs();
  void say_uncut(Time now);
  void judge_held();
  void ask_to_begin();
  void on_begin(const wire::Begin& begin);
  void set_may_fall(source::FragmentQueue::Fall may);
  void confirm_equal();
  void confirm_near();
  void watch_unclear(Duration now);
  [[nodiscard]] bool any_settled();
  void confirm_told();
  void end_held();
  [[nodiscard]] const Input* overtaker(const Input& input) const;
  void pass_over_quiet(Duration now);
  void note_progress(Input& input, Duration now);
  void note_given_up(Input& input);
  void watch_silence();
  bool watch_silence(Input& input, Duration now);
  void watch_slow(Input& input, Duration now);
  void pass_unread();
  void announce(bool idle);
  [[nodiscard]] bool worth_announcing(EventNumber& end, bool idle);
  [[nodiscard]] std::uint64_t bytes_of(EventRange range) const;
  bool announce_range(EventRange range);
  bool announce_gap(EventNumber end);
  [[nodiscard]] bool all_silent() const;
  void answer();
  void count();
  void say_status();
  [[nodiscard]] std::string waits_for() const;

  // sending
  [[nodiscard]] bool answered(EventRange range);
  void release_cut();
  [[nodiscard]] MetadataLayout layout() const;
  [[nodiscard]] static Time next_read(const Input& input, Time now);
  void arm_tick(Time now);

  const System& system_;
  const std::uint64_t digest_; // of system_
  ReadoutOptions options_;
  NodeEnvironment environment_;
  std::vector<std::unique_ptr<Input>> inputs_;
  std::vector<std::unique_ptr<Readable>> readables_;
  std::vector<source::FragmentQueue*> queues_; // of inputs_
  std::unique_ptr<ControlClient> control_;
  net::Timer tick_; // deadlines of announcing and of silent sources, wake times of sources
  net::Timer status_tick_;

  Incarnation incarnation_ = 0; // 0: not welcomed
  RunNumber run_ = 0;
  EventNumber limit_ = 0;
  EventNumber read_end_ = 0; // of the last limit: up to where sources are read, limit_ or less
  EventNumber horizon_ = 0; // events below exist somewhere
  EventNumber heard_ = 0; // the event manager's horizon
  std::uint32_t held_said_ = 0; // messages
  std::uint32_t held_answered_ = 0;
  EventNumber held_told_ = 0; // the lowest number held, when it was said last
  bool held_waits_ = false; // the event manager is to say more of it
  bool held_ended_ = false; // said then: all sources have come to their end
  bool joined_run_ = false; // under way, or triggered
  std::string apart_; // sources that begin too far from each other; empty: none
  bool others_wait_ = false; // all other readout units do, for this one
  bool begin_asked_ = false; // and not answered
  bool alone_ = false; // all other readout units have come to their end
  std::vector<EventNumber> ends_; // reused
  EventNumber announced_ = 0; // events below are announced
  EventNumber joined_ = 0; // the first number announced; all below are absent
  bool numbered_ = false; // announced_ means something
  bool last_ = false; // no event from limit_ on will be wanted
  bool final_ = false; // said so
  bool paused_ = false;
  bool pause_wanted_ = false; // not answered yet
  bool finish_wanted_ = false;
  bool retry_full_ = false; // room or numbers were given back: inputs that were full may go on
  bool ended_ = false;
  Time announce_due_ = never;
  Time throttled_since_ = never;
  Time uncut_since_ = never; // pull: what is announced and not asked for holds the sources up
  EventNumber uncut_ = 0; // from here on
  DeadlineClock clock_; // for silent sources

  std::deque<wire::Assign> waiting_again_; // for metadata pages: batches that were assigned before
  std::deque<wire::Assign> waiting_; // and new ones

  std::optional<RetainedBatches> retained_;
  std::optional<BuilderLinks> links_;
  wire::NodeCounters counters_;
  std::vector<wire::SourceCounters> source_counters_;
};

} // namespace fanin::builder
