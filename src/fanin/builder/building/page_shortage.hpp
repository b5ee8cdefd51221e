// Batches that hold all pages of a builder unit, so that none of them is ever complete. There are
// pages for what the event manager assigns; but a readout unit may send what was not assigned, or
// more than it has announced.
#pragma once

#include <optional>
#include <vector>

#include "fanin/base/clock.hpp"
#include "fanin/builder/building/assembler.hpp"
#include "fanin/builder/deadline_clock.hpp"

namespace fanin::builder {

// Knows no connection.
class PageShortage {
public:
  explicit PageShortage(Duration patience) : patience_(patience), clock_(patience / 4) {}

  // `short_now`: no page is free, and storage will give none back. True, once: for `patience`. The
  // time in which it was not called at least four times in `patience` does not count.
  [[nodiscard]] bool lasts(bool short_now, Time now) {
    const Duration running = clock_.read(now, false);
    if (!short_now) since_.reset();
    if (short_now && !since_) since_ = running;
    if (!since_ || running - *since_ < patience_) return false;
    since_.reset();
    return true;
  }

  // Storage has some of the batches, or will have them without further blocks. `in_order`: it takes
  // them in the order of their events.
  [[nodiscard]] static bool storage_has_any(const Assembler& assembler, bool in_order) {
    for (const auto& [first, assembly] : assembler.assemblies()) {
      if (assembly->state == AssemblyState::decided) return true;
      if (in_order && assembly->state == AssemblyState::assigned) return false;
    }
    return false;
  }

  // Those that were not assigned; if there are none, all that wait for blocks but the oldest.
  [[nodiscard]] static std::vector<Assembly*> to_give_up(const Assembler& assembler) {
    std::vector<Assembly*> early;
    std::vector<Assembly*> assigned;
    for (const auto& [first, assembly] : assembler.assemblies()) {
      if (assembly->state == AssemblyState::early) early.push_back(assembly);
      if (assembly->state == AssemblyState::assigned) assigned.push_back(assembly);
    }
    if (assigned.size() > 1) assigned.erase(assigned.begin());
    return early.empty() ? assigned : early;
  }

private:
  Duration patience_;
  DeadlineClock clock_;
  std::optional<Duration> since_;
};

} // namespace fanin::builder
