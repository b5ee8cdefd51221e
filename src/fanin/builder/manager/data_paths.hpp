// Which readout units reach which builder units with their data. Batches go only to builder units
// that all readout units reach. A readout unit that does not get through is told to try its next
// rail, and is given up if no builder unit is reached by all for too long.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "fanin/base/clock.hpp"
#include "fanin/base/identity.hpp"

namespace fanin::builder {

// Knows no connection. All times are the event manager's, which pass_over() moves.
class DataPaths {
public:
  // `patience`: how long a path may be broken before the readout unit is told to try another one;
  // twice as long each time.
  DataPaths(std::size_t readout_units, std::size_t builder_units, Duration patience)
      : patience_least_(patience), readouts_(readout_units), builders_(builder_units) {
    for (Builder& builder : builders_) builder.paths.resize(readout_units);
  }

  void readout_up(NodeId node, Incarnation incarnation, Time now);
  void readout_down(NodeId node);
  void builder_up(NodeId node, Time now);
  void builder_down(NodeId node);
  // It has said something, whatever it was.
  void heard(NodeId builder, Time now) { builders_[builder].heard = now; }
  // As the builder unit says: data of this incarnation can come, or not any more. False: it speaks
  // of an earlier incarnation.
  bool report(NodeId builder, NodeId readout, Incarnation incarnation, bool open, Time now);

  // By all readout units that are here.
  [[nodiscard]] bool reached(NodeId builder) const {
    return builders_[builder].up && builders_[builder].broken == 0;
  }
  [[nodiscard]] bool open(NodeId builder, NodeId readout) const {
    return builders_[builder].paths[readout].incarnation == readouts_[readout].incarnation;
  }
  // Calls tell(builder, readout) for each path that has been broken for too long; it says whether
  // the readout unit could be told to try another one.
  template <class Tell>
  void for_each_overdue(Time now, Tell tell);

  // Checks whether there is a builder unit that all reach. True: paths have changed since then.
  bool update(Time now);
  // Since when there is none, although builder units are here; never: there is one.
  [[nodiscard]] Time unreached_since() const { return unreached_since_; }
  // The fewest readout units whose loss leaves a builder unit that all others reach. It counts anew
  // from here on.
  [[nodiscard]] std::vector<NodeId> smallest_set_to_drop();

  // A builder unit blames this readout unit: nothing of it comes. That holds as long as the builder
  // unit is up.
  void failing(NodeId builder, NodeId readout, Time now);
  // Something of it was built.
  void works(NodeId readout) {
    if (readouts_[readout].blamed) forgive(readout);
  }
  // Of the builder units that are up; never: none blames it.
  [[nodiscard]] Time failing_since(NodeId readout) const;
  // It was given up, and is not taken again before that time.
  void bar(NodeId readout, Time until) { readouts_[readout].barred_until = until; }
  [[nodiscard]] bool barred(NodeId readout, Time now) const {
    return now < readouts_[readout].barred_until;
  }

  // The event manager did not run for so long: nobody is judged by that time.
  void pass_over(Duration pause, Time now);
  // Builder units that have said nothing for longer than `normal` may be frozen. They could not say
  // that a readout unit reaches them: nobody is judged by that time. Called now and then, before
  // anybody is judged.
  void pass_over_silence(Duration normal, Time now);

private:
  struct Path { // from a readout unit
    Incarnation incarnation = 0; // whose data can come; 0: none
    Time broken_since{}; // or told to try another
    Duration patience{}; // until it is told again; 0: the least
    Time failing_since = never;
  };
  struct Builder {
    bool up = false;
    std::size_t broken = 0; // paths of readout units that are here, as long as it is up
    std::vector<Path> paths; // by readout unit
    Time heard{};
    Time passed_over_until{}; // its silence
    // Nobody is judged by what this builder unit did not say meanwhile.
    void pass_over(Duration pause, Time now);
  };
  struct Readout {
    bool up = false;
    Incarnation incarnation = 0;
    bool blamed = false; // by any builder unit since something of it was built
    Time barred_until{};
  };
  [[nodiscard]] bool broken(NodeId builder, NodeId readout) const {
    return readouts_[readout].up && !open(builder, readout);
  }
  void count_broken(Builder& builder);
  void forgive(NodeId readout);

  Duration patience_least_;
  std::vector<Readout> readouts_;
  std::vector<Builder> builders_;
  bool changed_ = false;
  Time unreached_since_ = never;
  Time passed_over_until_{}; // the silence of all
};

template <class Tell>
void DataPaths::for_each_overdue(Time now, Tell tell) {
  for (std::size_t b = 0; b < builders_.size(); ++b) {
    const auto builder = static_cast<NodeId>(b);
    if (!builders_[b].up || builders_[b].broken == 0) continue;
    for (std::size_t r = 0; r < readouts_.size(); ++r) {
      const auto readout = static_cast<NodeId>(r);
      Path& path = builders_[b].paths[r];
      const Duration patience = path.patience > patience_least_ ? path.patience : patience_least_;
      if (!broken(builder, readout) || now - path.broken_since < patience) continue;
      if (!tell(builder, readout)) continue;
      path.broken_since = now;
      path.patience = 2 * patience;
    }
  }
}

} // namespace fanin::builder
