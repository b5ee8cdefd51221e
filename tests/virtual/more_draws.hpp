// What half of the seeded runs have besides: other settings, slow links, sources as fast as they
// may be, narrow counters, and more that goes wrong (Trouble::step_more()). It has random numbers
// of its own, so that it changes nothing in the other runs.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "fanin/base/random.hpp"
#include "virtual/trouble.hpp"
#include "virtual/virtual_system.hpp"

namespace fanin::testing {

class MoreDraws {
public:
  // Changes `options`, which refer to it from then on.
  MoreDraws(std::uint64_t seed, VirtualSystemOptions& options);
  MoreDraws(const MoreDraws&) = delete;
  MoreDraws& operator=(const MoreDraws&) = delete;

  [[nodiscard]] bool on() const { return on_; }
  // Of each connection to a builder unit, in bytes per second; 0: no limit.
  [[nodiscard]] std::uint64_t link_rate() const { return link_rate_; }
  void step(Trouble& trouble);
  // Fragments of this source that came before its first number.
  [[nodiscard]] std::uint64_t dropped(SourceId source) const;
  // What was drawn.
  [[nodiscard]] std::string text() const { return text_; }

private:
  struct Counter { // of a source
    int bits = 64;
    std::uint64_t begins = 0; // at the first event
    std::uint64_t garbage = 0; // fragments before it
  };
  void draw_settings(VirtualSystemOptions& options);
  void draw_slow_links(VirtualSystemOptions& options);
  void draw_full_rate(VirtualSystemOptions& options);
  void draw_counters(VirtualSystemOptions& options);
  void draw_rails(VirtualSystemOptions& options);

  bool on_;
  Random random_;
  Random rails_; // likewise: they change nothing in runs without them
  bool has_rails_ = false; // of control
  std::uint64_t link_rate_ = 0;
  EventNumber first_event_ = 0;
  std::map<SourceId, Counter> counters_;
  std::string text_;
};

} // namespace fanin::testing
