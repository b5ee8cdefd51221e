// What networks and hosts do to the nodes of an event builder, drawn at random. Knows which of it
// explains that a node was given up.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "fanin/base/random.hpp"
#include "virtual/virtual_system.hpp"

namespace fanin::testing {

// Readout units are harmed so that they lose data only where they are not spared. Dead paths, lost
// connections, slow and dead control, and pauses shorter than dead_after cost nobody anything.
class Trouble {
public:
  // Both must outlive it.
  Trouble(VirtualSystem& system, const builder::System& agreed, Random& random,
          bool spare_readouts);

  // Of each connection to a builder unit, in bytes per second; 0: no limit.
  void limit_links(std::uint64_t rate);
  // One after the other, with time between them.
  void step();
  // Of the event manager's host, of control connections, of links, or two things at once.
  void step_more(Random& random);
  // One of several rails of control, to all nodes or to one, for as long as it likes: it costs no
  // readout unit anything, and a builder unit begins anew.
  void break_rail(Random& random);
  void all_up();

  // Nodes that were given up more often than they were harmed.
  [[nodiscard]] std::string unexplained(const builder::RunSummary& summary) const;
  [[nodiscard]] bool harmed(std::size_t readout) const { return given_up_[readout] > 0; }

private:
  struct Path {
    net::VirtualNode* from;
    net::VirtualNode* to;
    std::uint16_t port;
  };
  using Paths = std::vector<Path>;

  [[nodiscard]] net::VirtualNode& node(std::size_t i); // readout units, then builder units
  void kill_or_start(std::size_t i);
  void pause(std::size_t i, Duration longest);
  void break_paths();
  void break_control(Random& random, std::size_t i);
  void break_both(Random& random, std::size_t r, std::size_t b);
  void delay_control(Random& random);
  void narrow(Random& random, std::size_t b);
  void trouble_names(std::size_t r, std::size_t b);
  void slow_down();
  Duration run_for(Duration longest, Random& random);
  Duration run_for(Duration longest) { return run_for(longest, random_); }
  void run_until_idle();
  void unheard(std::size_t i, Duration time);
  void unanswered(std::size_t i, Duration time);
  void unanswered(Duration time);
  void let_speak(std::size_t i);
  void with(const Paths& broken, Duration time);

  VirtualSystem& system_;
  const builder::System& agreed_;
  Random& random_;
  bool spare_readouts_;
  std::uint64_t link_rate_ = 0;
  Time slow_until_{};
  Time delayed_until_{}; // what was said before still is under way
  std::vector<bool> up_; // readout units, then builder units
  std::vector<Time> silent_until_; // likewise
  std::vector<std::uint64_t> given_up_; // at most so often
  bool end_report_lost_ = false; // nodes ended, and a rail of control swallowed that they said so
};

} // namespace fanin::testing
