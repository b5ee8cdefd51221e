// Whether a source keeps up with others that have events which it has not answered for. It is
// silent when nothing comes from it for the deadline, and slow when it sends and alone holds the
// others back. Then it is given up: what it has not sent is absent, and what comes later is dropped
// as late.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fanin/base/log.hpp"
#include "fanin/builder/system.hpp"
#include "fanin/source/fragment_queue.hpp"

namespace fanin::builder {

// Knows one source alone. All times are those of a DeadlineClock.
class SourceWatch {
public:
  // `system` must outlive it; `name` is the source's, for the log.
  SourceWatch(const System& system, std::string name, LogFunction log)
      : system_(system), name_(std::move(name)), log_(std::move(log)) {}

  // A new incarnation of the readout unit: nobody is late.
  void begin() { state_ = {}; }

  // What has come since the last call. `busy`: it could have given more; `ends`: the run, so that
  // nobody waits for what is late.
  void note_progress(const source::FragmentQueue& queue, bool busy, bool ends, Duration now);
  // Events below `horizon` exist. Gives up a source that is silent. True: it is behind, and was
  // not given up now.
  bool watch_silence(source::FragmentQueue& queue, EventNumber horizon, bool busy, Duration now);
  // The same for one that has said that nothing comes for now: it is waited for System::latency, in
  // case it begins again at the same time as others.
  void pass_paused(source::FragmentQueue& queue, EventNumber horizon, Duration now);
  // `holds_back`: whom it alone holds back, as the log says; empty: nobody. Gives it up where
  // System::event_give_up_slow says so. Requires that it is behind.
  void watch_slow(source::FragmentQueue& queue, EventNumber horizon, std::string_view holds_back,
                  Duration now);

  // A number before or at a jump of which the others say nothing for half of the deadline is judged
  // without them. `ended`: the source has come to its end, and nothing follows what it holds.
  void watch_unclear(source::FragmentQueue& queue, bool ended, Duration now);

  // It was given up, and has sent nothing since that is waited for.
  [[nodiscard]] bool silent() const {
    return state_.standing == Standing::silent || state_.standing == Standing::slow_and_silent;
  }
  // It alone holds others back, and that was logged.
  [[nodiscard]] bool slow() const { return state_.slow_since && state_.slow_reported; }
  // The other functions have to be called again: it is behind, or a jump is not clear.
  [[nodiscard]] bool has_deadline() const { return !state_.marks.empty() || state_.unclear_since; }
  // It last gave a fragment, or could have given one.
  [[nodiscard]] Duration moved_at() const { return moved_at_; }

private:
  enum class Standing : std::uint8_t {
    present,
    silent, // given up
    trailing, // was given up, and sends what is late, but so near that it is waited for
    slow, // given up
    slow_and_silent // given up as slow, and now it sends nothing
  };
  struct Mark {
    Duration at{};
    EventNumber horizon = 0; // then
  };
  struct State { // of one incarnation
    Standing standing = Standing::present;
    std::vector<Mark> marks; // since when it is behind; both members rise, or stay
    std::optional<Duration> accepted_at; // a fragment, at the last check
    std::optional<Duration> slow_since; // it alone holds others back
    std::optional<Duration> unclear_since;
    bool slow_reported = false;
    bool trailing_reported = false; // since a fragment was taken
  };

  [[nodiscard]] EventNumber known_for(Duration patience, const source::FragmentQueue& queue,
                                      EventNumber horizon, Duration now);
  void give_up(Standing standing, const source::FragmentQueue& queue);
  void give_up_silent(source::FragmentQueue& queue, EventNumber until, wire::AbsentReason why);
  [[nodiscard]] bool may_return() const {
    return state_.standing == Standing::silent || state_.standing == Standing::trailing;
  }

  const System& system_;
  std::string name_;
  LogFunction log_;
  State state_;
  std::uint64_t written_ = 0; // at the last check
  EventNumber reached_ = 0; // likewise
  std::uint64_t late_before_ = 0; // its late fragments, when it was given up
  Duration moved_at_{};
};

} // namespace fanin::builder
