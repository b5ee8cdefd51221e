// Which events exist: what each readout unit has announced, up to where the run is known, which
// numbers are gaps, where the next batch ends, and which fragments died with their readout unit.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <vector>

#include "fanin/base/clock.hpp"
#include "fanin/base/state.hpp"
#include "fanin/builder/manager/absent_ranges.hpp"
#include "fanin/builder/manager/cut_points.hpp"
#include "fanin/builder/overtaking.hpp"
#include "fanin/builder/system.hpp"
#include "fanin/source/number_judge.hpp"
#include "fanin/wire/control.hpp"

namespace fanin::builder {

// Knows no connection. What readout units say is checked here. An event exists when a readout unit
// has announced it; a number that none has below all announcements is a gap. With a trigger all
// numbers exist that it has triggered (know_until()). It stays one type of more than 400 lines,
// since where batches begin and end, what is a gap and what was lost are read from the same
// announcements.
class Announcements {
public:
  enum class State : std::uint8_t {
    away,
    joined,     // here, and has announced nothing
    announcing, // its next announcement begins at `end`
    ended       // nothing will follow
  };
  friend constexpr bool may_follow(State from, State to) {
    switch (to) {
    case State::away: return from != State::away;
    case State::joined: return true; // new, or it begins again
    case State::announcing: return from != State::ended;
    case State::ended: return from == State::joined || from == State::announcing;
    }
    return false;
  }
  struct Readout {
    CheckedState<State> state = State::away;
    EventNumber first = 0;
    EventNumber end = 0;       // announced below
    bool silent = false; // no source of it sends; where it begins: they were given up
    bool few = false; // what it has may be left over from an earlier run
    Duration announced_at{};   // something, last, or was held back
    bool held_back = false; // has more, and waits for others or for builder units
    bool died = false; // in mid-run: numbers that it has not announced were not read
    source::UsualStep gaps; // of a window and more
    std::uint64_t in_a_row = 0; // numbers announced since an unusual gap
    // By source, of events that are not decided yet. The last one: no source sent anything.
    std::vector<AbsentRanges> absent;
    std::deque<AnnouncedRange> open;  // that end behind assigned_end()
    EventNumber counted_end = 0; // of the last one; its first one counts from anywhere
    [[nodiscard]] bool here() const { return state != State::away; }
    [[nodiscard]] bool begun() const { return state == State::announcing || state == State::ended; }
    [[nodiscard]] bool empty() const { return first == end; }
    // It counts for where batches begin. One without an event does not, if it has come to its end
    // or begins only because its sources were given up.
    [[nodiscard]] bool decides_begin() const {
      return begun() && (!empty() || (state == State::announcing && !silent));
    }
  };

  // Ranges of one readout unit that are announced and not assigned, and of one source that are
  // absent and not decided. A source holds at most 2^20 fragments, with gaps between them. So
  // announcements of a good readout unit exceed neither, if no batch is assigned without
  // has_room().
  static constexpr std::size_t ranges_usual_max = 1U << 22;

  // Both must outlive it.
  Announcements(const System& system, const SourceIndex& sources,
                std::size_t ranges_max = ranges_usual_max);

  // A new incarnation; `first`: where it joins a run under way, none: its first announcement says
  // where it begins.
  void join(NodeId node, std::optional<EventNumber> first);
  // It has died: what it had announced exists, and is lost.
  void leave(NodeId node);
  // `decided`: events below are built. False: the message is invalid.
  [[nodiscard]] bool add(NodeId node, const wire::Announce& announce,
                         std::span<const wire::AbsentRange> absent, EventNumber decided,
                         Duration now);
  // It has more than it may read, since it waits for others or for builder units.
  void held_back(NodeId node, bool held_back, Duration now);
  // All others have more, and wait for it.
  [[nodiscard]] bool holds_all_back(NodeId node) const;
  // As long as no batch begins anywhere, takes back what it has announced. False: it is too late.
  [[nodiscard]] bool take_back(NodeId node);

  [[nodiscard]] const Readout& readout(NodeId node) const { return readouts_[node]; }
  [[nodiscard]] std::span<const Readout> readouts() const { return readouts_; }

  // Events below exist, or are gaps: the furthest announcement.
  [[nodiscard]] EventNumber announced_end() const { return announced_end_; }
  void know_until(EventNumber event) { announced_end_ = std::max(announced_end_, event); }

  // Batches begin at first_event().
  [[nodiscard]] bool begun() const { return begun_; }
  [[nodiscard]] EventNumber first_event() const { return first_event_; }
  // With a trigger batches begin at 0.
  void begin() { begun_ = true; }
  // Batches could begin: all readout units that are here have begun, and those that do not decide
  // about it are between where the first of the others begins and `horizon`, up to where events
  // are known.
  [[nodiscard]] bool may_begin(EventNumber horizon) const;
  // Where the first of those begins that decide about it; none: there is none.
  [[nodiscard]] std::optional<EventNumber> first_announced() const;
  // Batches begin there, or at announced_end() if there is none.
  void begin_at_first();
  struct Apart {
    NodeId first = 0;
    NodeId further = 0;
  };
  // Two readout units that begin more than a window from each other, without others between.
  [[nodiscard]] std::optional<Apart> apart() const;

  // A readout unit begins above where another one is, or with a few fragments above where it began:
  // they may be left over from an earlier run. Returns where the first one begins.
  [[nodiscard]] std::optional<EventNumber> others_begin_above() const;

  // Events below are assigned, or gaps.
  [[nodiscard]] EventNumber assigned_end() const { return cuts_.start(); }
  void move_to(EventNumber assigned_end);
  // Those below could be assigned: all readout units that are here have announced them.
  [[nodiscard]] EventNumber assignable_end() const;
  [[nodiscard]] bool any_silent() const { return silent_ > 0; }
  // Some go on, and all of them are there or beyond: nothing follows below.
  [[nodiscard]] bool all_at(EventNumber event) const;
  // All that are here have come to their end, and there is one.
  [[nodiscard]] bool all_ended() const { return here_ > 0 && ended_ == here_; }
  [[nodiscard]] bool none_goes_on() const { return ended_ == here_; }
  [[nodiscard]] Cut next_cut(EventNumber end) const { return cuts_.next(end); }

  // Whether few absent ranges are undecided. If not, batches that are assigned have to be built
  // before the next one is: a builder unit that stores nothing holds up others then. `decided` as
  // for add().
  [[nodiscard]] bool has_room(EventNumber decided);

  // The first event from `event` on that a source has, or `end`.
  [[nodiscard]] EventNumber present_from(EventNumber event, EventNumber end) const;
  // The first from `event` on that no source has, or `end`.
  [[nodiscard]] EventNumber gap_from(EventNumber event, EventNumber end) const;
  [[nodiscard]] std::uint64_t count_present(EventRange range) const;
  // The gaps in a batch. It ends with an event, so that a gap that goes on lies in one piece.
  [[nodiscard]] std::vector<wire::Gap> gaps_in(EventRange& range) const;

  // Up to where readout units agree that events exist: an announcement more than a window ahead of
  // all others counts when another one comes there, since its source may be wrong. Who is at its
  // end, silent or passed over is not waited for. Before batches begin, a few fragments do not
  // count.
  [[nodiscard]] EventNumber horizon(const Overtaking& overtaking) const;

  // The fragments in the range of this readout unit, or of incarnations that have died, appended.
  void add_fragments(NodeId node, EventRange range, std::vector<wire::MissingRange>& lost) const;
  void add_lost(EventRange range, std::vector<wire::MissingRange>& lost) const;
  // What nobody read in the range, since its readout unit was dead, appended.
  void add_unread(EventRange range, std::vector<wire::MissingRange>& lost) const;

private:
  struct Past { // of an incarnation that has died
    NodeId node = 0;
    EventRange range;
    std::vector<AbsentRanges> absent; // as Readout::absent
  };
  [[nodiscard]] bool valid(NodeId node, const wire::Announce& announce,
                           std::span<const wire::AbsentRange> absent) const;
  [[nodiscard]] static bool begins_again(const Readout& readout, EventNumber first);
  [[nodiscard]] bool can_be_absent(NodeId node, EventRange range,
                                   std::span<const wire::AbsentRange> absent) const;
  void note_sent(Readout& readout, EventRange range, std::span<const wire::AbsentRange> absent,
                 EventNumber decided);
  template <class Change>
  void change(Readout& readout, Change change);
  [[nodiscard]] bool behind(const Readout& readout) const;
  void forget_open(Readout& readout);
  void find_announced_end();
  [[nodiscard]] EventRange not_announced(NodeId node, EventRange range) const;
  void add_present(NodeId node, EventRange known, const std::vector<AbsentRanges>& absent,
                   EventRange range, std::vector<wire::MissingRange>& lost) const;
  template <class Visit>
  [[nodiscard]] bool any_source(const Visit& visit) const;

  const System& system_;
  const SourceIndex& sources_;
  std::size_t ranges_max_;
  std::size_t absent_most_ = 0; // ranges of a source, at least as many as any has
  std::vector<std::size_t> first_source_; // by readout unit, and the end of all
  std::vector<Readout> readouts_;
  std::vector<Past> past_; // ascending by node
  CutPoints cuts_;
  bool begun_ = false;
  EventNumber first_event_ = 0;
  EventNumber announced_end_ = 0;
  // How many readout units are: here, joined, at their end, here and silent, and not announced
  // beyond assigned_end().
  std::size_t here_ = 0;
  std::size_t joined_ = 0;
  std::size_t ended_ = 0;
  std::size_t silent_ = 0;
  std::size_t behind_ = 0;
};

} // namespace fanin::builder
