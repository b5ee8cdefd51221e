// Decides whether a source counts again in mid-run: its front end, or the program that sends its
// fragments, was restarted. The judge knows no fragment, page or time.
#pragma once

#include <cstdint>
#include <optional>

#include "fanin/base/identity.hpp"

namespace fanin::source {

// So many numbers in a row that rise below those that were accepted are a source that counts again.
// Of wrong numbers fewer follow each other.
inline constexpr std::uint64_t enough_back = 3;

class RestartJudge {
public:
  // What a fragment says whose number is below one that was accepted.
  enum class Says : std::uint8_t {
    nothing, // it may have been dropped before, or be right
    alike, // it may be a repeat: the accepted one is equal, as many others are
    repeat, // it has come before
    other // the source had another fragment of this number, or none
  };
  // Who sends, as far as that is known.
  enum class Sender : std::uint8_t {
    same, // as before
    again, // as before, over another connection: it repeats what may be lost
    unknown, // over another connection: perhaps a program that was restarted
    other // another program
  };

  // A run begins.
  void start() { *this = RestartJudge{}; }
  // The readout unit joins its run again.
  void join() { begin_sender(Sender::same); }
  // What follows comes from this sender.
  void begin_sender(Sender sender) {
    row_ = {};
    sender_ = sender;
  }
  // A number comes that is below the end of the accepted ones.
  void goes_back(EventNumber number, Says says, EventRange accepted);
  // A number comes that is above all accepted ones, which end at `accepted_end`.
  void goes_on(EventNumber number, EventNumber accepted_end);
  // The source says that it has nothing below this number. It says where a restarted source stands
  // if it is the first thing that its program says, and can be true: a counter that fell stays
  // behind by what it fell at least.
  void says_position(EventNumber number);

  // Nobody knows to which events its fragments belong.
  [[nodiscard]] bool in_doubt() const { return behind_ != 0; }
  // Nothing of a sender that may be another one was accepted yet.
  [[nodiscard]] bool may_be_other() const {
    return sender_ == Sender::unknown || sender_ == Sender::other;
  }
  // Numbers below accepted ones have come since one was accepted.
  [[nodiscard]] bool is_back() const { return row_.fragments != 0; }
  // Some of them are repeats.
  [[nodiscard]] bool repeats() const { return row_.repeats; }
  // The last accepted number when numbers fell most lately, and where they fell to.
  [[nodiscard]] EventNumber fell_from() const { return fell_from_; }
  [[nodiscard]] EventNumber fell_to() const { return fell_to_; }

private:
  // Numbers that rise below the accepted ones.
  struct Row {
    EventNumber first = 0;
    EventNumber last = 0;
    Says last_says = Says::nothing;
    EventNumber step = 1; // to the last one
    std::uint64_t fragments = 0;
    std::uint64_t alike = 0;
    std::uint64_t others = 0;
    bool repeats = false;
  };
  [[nodiscard]] bool is_restart(EventRange accepted) const;
  void doubt(EventNumber accepted_end);

  Sender sender_ = Sender::same;
  Row row_;
  EventNumber behind_ = 0; // by so many numbers at least; 0: it is not in doubt
  EventNumber next_ = 0; // after the last one that has come
  std::optional<EventNumber> position_; // where a source in doubt says that it stands
  EventNumber fell_from_ = 0;
  EventNumber fell_to_ = 0;
};

} // namespace fanin::source
