/// \file
/// Decides which event numbers of a source are right. A front end may flip a bit of a number, lose
/// numbers, or reset its counter late. So a number that is not the next one is held until something
/// confirms it, and changes nothing before. The judge knows no fragment, page or time.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>

#include "fanin/base/identity.hpp"

namespace fanin::source {

/// Where the other sources of the run are.
struct OtherSources {
  EventNumber low = 0; ///< the lowest event that one of them holds
  EventNumber high = 0; ///< events below it exist, as far as they agree
  std::optional<EventNumber>
      first{}; ///< the lowest event that another one of the readout unit holds
  bool any = false; ///< false: no other source has begun
  bool few = false; ///< what they have may be left over from an earlier run: it confirms numbers,
                    ///< and makes none wrong that is followed by a higher one
  bool go_on = false; ///< one of them is alive and may still reach a jump
};

/// A source with so many fragments since its last jump is taken as right, even if another source is
/// quiet for the deadline.
inline constexpr std::uint64_t enough_in_a_row = 8;

/// So many numbers may be lost at the beginning of a source whose first number is known.
inline constexpr std::uint64_t lost_at_first_max = 15;

/// So many jumps are dropped one after the other if no other source confirms them. The next one is
/// accepted: the source has such numbers.
inline constexpr std::uint64_t jumps_dropped_max = 2;

/// A source may lose so many fragments right before a jump of all sources, without being taken for
/// a source that jumps alone.
inline constexpr std::uint64_t lost_before_jump_max = 16;

/// The usual step of a source or readout unit that leaves many numbers out. A single large step is
/// forgotten after a while.
class UsualStep {
public:
  void add(std::uint64_t step) { usual_ = std::max(step, usual_ - usual_ / 16); }
  /// Adds so many steps of 1.
  void add_ones(std::uint64_t steps) {
    for (; steps > 0 && usual_ >= 16; --steps) usual_ -= usual_ / 16;
  }
  /// Numbers less far apart than this are usual: `window`, or 16 usual steps if that is more.
  [[nodiscard]] std::uint64_t reach(std::uint64_t window) const {
    return std::max(window, 16 * std::min(usual_, event_number_end / 16));
  }

private:
  std::uint64_t usual_ = 0;
};

class NumberJudge {
public:
  /// Numbers less than `window` apart confirm each other. Fragments are dropped until the number
  /// `first` has come. It may be lost or damaged: one of the next numbers will do, as soon as it is
  /// confirmed, if a number came before that cannot be such a one. (Without it the counter may
  /// stand there before it is reset.)
  explicit NumberJudge(std::uint64_t window, std::optional<EventNumber> first = {})
      : window_(window), first_(first), waits_for_first_(first.has_value()) {}

  /// True: the number comes before the source's first number `first`, and does not confirm `held`.
  [[nodiscard]] bool too_early(EventNumber number, std::optional<EventNumber> held = {}) const {
    const bool confirms = held && begins(*held) && is_near(*held, number);
    const bool early = takes_early_ && number > *first_;
    return waits_for_first_ && !begins(number) && !confirms && !early;
  }
  /// Whether numbers above `first` are taken although it has not come: it may be lost. What is
  /// taken may be dropped again, and `first` is a reset of the counter then.
  void take_early(bool take) { takes_early_ = take && waits_for_first_; }
  [[nodiscard]] bool takes_early() const { return takes_early_; }
  /// A number was dropped because it is too early.
  void dropped_early(EventNumber number) { has_come_ = has_come_ || !is_near(*first_, number); }
  /// A held number is taken: no other one is waited for if it may be the first.
  void taken(EventNumber number) {
    if (begins(number)) join();
  }
  /// True: the number is right at once, since it is the next one, repeats the last two steps, or is
  /// the source's `first`. (One step alone could come from a lost fragment.) Any other number has
  /// to be held. `next`: all numbers below it are answered; none: the source has no number yet. The
  /// number must not be below `next`, unless the source's counter may fall.
  [[nodiscard]] bool follows(EventNumber number, std::optional<EventNumber> next) const;

  /// True: the source is sparse, and the number is no jump.
  [[nodiscard]] bool follows_loosely(EventNumber number, std::optional<EventNumber> next) const {
    return sparse() && next && number >= *next && number - *next < reach();
  }

  enum class Verdict : std::uint8_t {
    right,
    wrong,
    counter_reset ///< the source's counter was reset before the run began; earlier numbers were
                  ///< wrong
  };
  /// Judges a held number by the number of the next fragment. A number held below `next` means that
  /// the counter was reset, if the following number confirms it.
  [[nodiscard]] Verdict by_next(EventNumber held, EventNumber following,
                                std::optional<EventNumber> next) const;
  /// True: the held number is out of reach of the source's last number, or the source has none yet.
  [[nodiscard]] bool jumps(EventNumber held, std::optional<EventNumber> next) const {
    return !next || held - *next >= reach();
  }
  /// True: the following number is a jump, and the held number is a jump too or the source has had
  /// every number so far. One of the two may be wrong, or both, or numbers are missing everywhere.
  /// The other sources know.
  [[nodiscard]] bool asks(EventNumber held, EventNumber following,
                          std::optional<EventNumber> next) const {
    if (following <= held || following - held < reach() || reached(held)) return false;
    if (!next) return !others_.few && !right_at_end(held);
    return last_ && held >= *next && (jumps(held, next) || (dense() && !reached_by_others(held)));
  }
  /// For a number of asks(). True: other sources are alive that may reach it and have not yet.
  [[nodiscard]] bool waits_for_others(EventNumber held, std::optional<EventNumber> next) const {
    return others_.go_on && !(jumps(held, next) ? near_others(held) : reached_by_others(held));
  }
  /// True: this source has had every number, and the others have continued beyond `then` where it
  /// has none. So it jumps alone.
  [[nodiscard]] bool left_behind(EventNumber next, EventNumber then) const {
    return dense() && others_.high > next + lost_before_jump_max && others_.high > then;
  }
  /// True: other sources have reached the held number, which confirms it. This holds for sparse
  /// sources, whose next fragment may take long, and for the first number of a source.
  [[nodiscard]] bool reached(EventNumber held) const {
    return (sparse() || !last_) && reached_by_others(held);
  }
  /// Whether a held number is right if no fragment follows.
  [[nodiscard]] bool right_at_end(EventNumber held) const {
    return !others_.any || near_others(held);
  }
  /// True: the source's last two numbers were not consecutive, and not because of one loss.
  [[nodiscard]] bool sparse() const { return step_ > 1 && step_before_ != 1; }
  [[nodiscard]] bool waits_for_first() const { return waits_for_first_; }
  /// Numbers less far apart than this confirm each other: the window; for a sparse source, 16 of
  /// its usual steps if that is more.
  [[nodiscard]] std::uint64_t reach() const { return sparse() ? usual_.reach(window_) : window_; }

  /// Whether the others have begun nearer to the number than to the other one. Nothing: they have
  /// not begun.
  [[nodiscard]] std::optional<bool> is_nearer_to_others(EventNumber number,
                                                        EventNumber other) const {
    if (!others_.first) return {};
    const auto distance = [first = *others_.first](EventNumber to) {
      return std::max(to, first) - std::min(to, first);
    };
    return distance(number) < distance(other);
  }

  void set_others(const OtherSources& others) { others_ = others; }
  /// Events from `end` on do not exist yet (a trigger): only the next fragment confirms a number
  /// there.
  void set_end(EventNumber end) { end_ = end; }
  void accepted(EventNumber number); ///< the number of a fragment was accepted
  /// A jump was dropped because another jump followed it. From then on the source does not count as
  /// one that has every number.
  void dropped_jump() {
    if (dense()) step_before_ = 0;
    ++jumps_dropped_;
  }
  /// All numbers up to `number` were accepted, and they were consecutive.
  void accepted_up_to(EventNumber number) {
    if (last_ && *last_ >= number) return; // above it, one was begun and taken back
    if (last_) usual_.add_ones(number - *last_);
    last_ = number;
    step_ = step_before_ = 1;
    jumps_dropped_ = 0;
  }
  void restart();
  /// The last numbers were wrong; those before them were not.
  void fell_back();
  /// The source joins a run under way: it does not wait for `first`.
  void join() { waits_for_first_ = takes_early_ = false; }
  /// Other sources have more than what may be left over from an earlier run.
  [[nodiscard]] bool others_have_begun() const { return others_.any && !others_.few; }

private:
  [[nodiscard]] bool steady() const { return step_ != 0 && step_ == step_before_; }
  [[nodiscard]] bool dense() const { return steady() && step_ == 1; }
  [[nodiscard]] bool reached_by_others(EventNumber number) const {
    return others_.any && number >= others_.low && number < others_.high;
  }
  [[nodiscard]] bool near_others(EventNumber number) const {
    const EventNumber low = others_.low > reach() ? others_.low - reach() : 0;
    return number >= low && (number <= others_.high || number - others_.high < reach());
  }

  [[nodiscard]] static bool is_near(EventNumber first, EventNumber number) {
    return number >= first && number - first <= lost_at_first_max;
  }
  [[nodiscard]] bool begins(EventNumber number) const {
    if (!first_ || number == first_) return number == first_;
    return has_come_ && is_near(*first_, number);
  }

  std::uint64_t window_;
  std::optional<EventNumber> first_;
  std::optional<EventNumber> last_; // accepted
  std::uint64_t step_ = 0; // between the last two accepted; 0: there are not two yet
  std::uint64_t step_before_ = 0; // likewise
  UsualStep usual_;
  std::uint64_t jumps_dropped_ = 0; // one after the other
  bool waits_for_first_;
  bool takes_early_ = false;
  bool has_come_ = false; // its numbers have come from below `first`, or were reset
  OtherSources others_;
  EventNumber end_ = event_number_end;
};

} // namespace fanin::source
