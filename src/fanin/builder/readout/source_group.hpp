// All sources of a readout unit: reads them, tells each one where the others are, decides with that
// which numbers are right, and gives up sources that do not keep up. SourceReader has one source
// with its queue; SourceWatch decides whether it is silent or slow.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "fanin/base/log.hpp"
#include "fanin/builder/deadline_clock.hpp"
#include "fanin/builder/overtaking.hpp"
#include "fanin/builder/readout/run_view.hpp"
#include "fanin/builder/readout/source_numbers.hpp"
#include "fanin/builder/readout/source_reader.hpp"
#include "fanin/builder/readout/source_watch.hpp"
#include "fanin/builder/system.hpp"
#include "fanin/source/event_numbers.hpp"

namespace fanin::builder {

// Knows no connection. It stays one type of more than 400 lines, since what is read, which numbers
// are right and who is given up follow from all sources together. Thread: the loop of the readout
// unit.
class SourceGroup {
public:
  // `inputs` are in the order of System::sources_of(). `system` and the pools must outlive it.
  SourceGroup(const System& system, std::vector<ReadoutInput> inputs, LogFunction log);

  // The readout unit has joined this run.
  void joined(const RunIdentity& run) {
    for (Member& member : members_) member.reader.joined(run);
  }
  // All sources are ready: the run may begin, as far as they know.
  [[nodiscard]] bool ready(Time now);
  // They are read from now on, unless ready() finds one that is not.
  void all_are_ready() {
    for (Member& member : members_) member.reader.all_are_ready();
  }
  // Human-readable: which ones were not when ready() was called last; empty: none.
  [[nodiscard]] const std::string& not_ready() const { return not_ready_; }
  // A new incarnation. A source that cannot start has failed; the log says why.
  void start(const wire::Welcome& welcome, const RunView& run, Time now);
  // The incarnation is over: what the queues hold is forgotten.
  void reset();

  // --- reading -----------------------------------------------------------------------------------

  // Reads the sources that are due. True: one of them has more.
  [[nodiscard]] bool read(const RunView& run, Time now);
  // Room or numbers were given back: sources whose queues were full may go on.
  void retry() { retry_ = true; }
  void set_limit(EventNumber limit, bool last = false) {
    for (source::FragmentQueue* const queue : queues_) queue->numbers().set_limit(limit, last);
  }
  // These events were cut.
  void release_until(EventNumber event) {
    for (source::FragmentQueue* const queue : queues_) queue->release_until(event);
  }
  // The event manager has all events below in its ledger: sources may forget them.
  void announced(EventNumber end) {
    for (Member& member : members_) member.reader.announced(end);
  }
  // When a source has to be read, or watch() to be called, at the latest.
  [[nodiscard]] Time next_turn(Time now) const;
  // All sources have come to their end.
  [[nodiscard]] bool all_done() const {
    return std::ranges::all_of(members_, [](const Member& m) { return m.reader.done(); });
  }
  // A source waits for room.
  [[nodiscard]] bool any_held_back() const;
  [[nodiscard]] bool any_far_ahead() const;

  // --- numbers -----------------------------------------------------------------------------------

  // The lowest number that a source holds.
  [[nodiscard]] std::optional<EventNumber> held() const { return lowest_held(queues_); }
  // Decides about held numbers by what is known of the others now. `answered`: the event manager
  // has said what it knows of them.
  void judge_held(const RunView& run, bool answered);
  // Another readout unit holds this number.
  void confirm(EventNumber number) { confirm_held(queues_, number); }
  // True: sources that were held back because of a jump go on.
  [[nodiscard]] bool take_decided();
  // A source's counter was reset, and its numbers were announced.
  [[nodiscard]] bool requests_reset() const {
    return std::ranges::any_of(queues_,
                               [](const auto* queue) { return queue->numbers().requests_reset(); });
  }
  void allow_reset(source::CounterReset may) {
    for (source::FragmentQueue* const queue : queues_) queue->numbers().allow_reset(may);
  }
  // Reading ends: nothing follows what is held, no counter is reset any more, and nothing is read
  // beyond what the answer says.
  [[nodiscard]] wire::Paused pause(const RunView& run);

  // --- who keeps up ------------------------------------------------------------------------------

  // Gives up sources that are silent or slow. Once a turn, after reading.
  void watch(const RunView& run, Time now);
  // Whether all sources have said what they have of these events. Those at their end have no more:
  // they say so now.
  [[nodiscard]] bool answer_for(EventRange range);
  // The run has no event yet, and of each source there are so few fragments that they may be left
  // over from an earlier run.
  [[nodiscard]] bool have_few(const RunView& run) const {
    return std::ranges::all_of(members_, [&](const Member& m) { return has_few(m, run); });
  }
  // None sends: at least one is silent, the others too or at their end.
  [[nodiscard]] bool all_silent() const {
    return !all_done() && std::ranges::all_of(members_, [](const Member& m) {
      return m.watch.silent() || m.reader.done();
    });
  }
  // Human-readable: which sources keep the run from going on; empty: none.
  [[nodiscard]] std::string waits_for(const RunView& run) const;

  // --- what can be announced ---------------------------------------------------------------------

  struct Answered {
    EventNumber end = 0; // all sources have answered for the numbers below
    bool final = false; // nothing will follow
  };
  // Nothing: a source has not begun, or, before anything is announced, sources begin so far apart
  // that one of them has wrong numbers.
  [[nodiscard]] std::optional<Answered> to_announce(const RunView& run);
  // The lowest number that a source has; else where the first one was given up; else 0.
  [[nodiscard]] EventNumber first_event() const {
    return lowest_own().value_or(lowest_number(queues_).value_or(0));
  }
  // No source has any number: they were given up, or have come to their end.
  [[nodiscard]] bool none_begins() const { return !lowest_own(); }
  // A source that was given up is beyond what is known: numbers fell.
  [[nodiscard]] bool any_beyond() const {
    return std::ranges::any_of(members_, [&](const Member& m) { return was_passed(m, horizon_); });
  }
  // What was announced is taken back.
  void forget_numbers() { forget_number_beyond(0); }

  // --- reports -----------------------------------------------------------------------------------

  [[nodiscard]] std::span<source::FragmentQueue* const> queues() const { return queues_; }
  [[nodiscard]] std::size_t size() const { return members_.size(); }
  [[nodiscard]] const SourceReader& reader(std::size_t i) const { return members_[i].reader; }
  [[nodiscard]] std::uint64_t payload_max() const; // bytes that all their pools hold
  [[nodiscard]] std::uint32_t page_least() const; // bytes: the smallest page of these pools
  // Sets what `counters` says of sources. Valid until the next call.
  [[nodiscard]] std::span<const wire::SourceCounters> count(wire::NodeCounters& counters, Time now);

private:
  struct Member {
    Member(std::size_t place, const System& system, const std::string& source_name,
           ReadoutInput input, const LogFunction& log)
        : index(place),
          name(source_name),
          reader(std::move(input), system.read_pause()),
          watch(system, source_name, log) {}
    [[nodiscard]] const source::FragmentQueue& queue() const { return reader.queue(); }
    std::size_t index;
    const std::string& name;
    SourceReader reader;
    SourceWatch watch;
  };

  [[nodiscard]] static bool pauses(const Member& member);
  [[nodiscard]] static bool has_no_number(const Member& member);
  [[nodiscard]] static bool has_begun(const Member& member);
  void forget_number_beyond(EventNumber horizon);
  [[nodiscard]] static bool was_passed(const Member& member, EventNumber horizon);
  [[nodiscard]] std::optional<EventNumber> lowest_own() const;
  [[nodiscard]] bool has_few(const Member& member, const RunView& run) const;
  [[nodiscard]] EventNumber known_end(const RunView& run);
  [[nodiscard]] std::optional<EventNumber> others_begin_above(const RunView& run) const;
  void decide_early(const RunView& run, Duration now);
  void wait_for_left_over(const RunView& run, Duration now);
  [[nodiscard]] bool is_waited_for(const Member& member) const;
  [[nodiscard]] source::OtherSources whole_run(const RunView& run);
  [[nodiscard]] source::OtherSources others_of(const Member& member, const RunView& run);
  [[nodiscard]] bool others_live(const Member& member, const RunView& run) const;
  [[nodiscard]] bool apart();
  void pass_over_stalled(Duration now);
  void watch(Member& member, const RunView& run, Duration now);
  [[nodiscard]] std::string_view held_back_by(const Member& member, const RunView& run) const;
  void pass_unread(const RunView& run);
  void pass_ended(source::FragmentQueue& queue, const RunView& run);
  void count_throttled(bool throttled, Time now);
  [[nodiscard]] bool held_up() const;
  void count_held_up(Time now);

  const System& system_;
  LogFunction log_;
  std::deque<Member> members_;
  std::vector<source::FragmentQueue*> queues_; // of members_
  Overtaking overtaking_;
  DeadlineClock clock_;
  EventNumber horizon_ = 0; // events below exist somewhere
  std::optional<Duration> early_since_; // a source waits for its `first`, and others have begun
  std::optional<EventNumber> above_; // as others_begin_above() said last
  Duration above_since_{}; // it said the same
  bool waits_for_left_over_ = false;
  std::string not_ready_;
  std::string apart_; // sources that begin too far from each other; empty: none
  bool retry_ = false;
  Time throttled_since_ = never;
  std::uint64_t throttled_us_ = 0;
  Time held_up_since_ = never;
  Duration held_up_for_{};
  std::vector<EventNumber> ends_; // reused, as the others below
  std::vector<Overtaking::End> overtaking_ends_;
  std::vector<wire::SourceCounters> counters_;
};

} // namespace fanin::builder
