// Batches that hold all pages of a builder unit, so that none of them is ever complete. There are
// pages for what the event manager assigns; but a readout unit may send what was not assigned, or
// more than it has announced.
#pragma once

#include <vector>

#include "fanin/base/clock.hpp"
#include "fanin/builder/building/assembler.hpp"

namespace fanin::builder {

// Knows no connection.
class PageShortage {
public:
  explicit PageShortage(Duration patience) : patience_(patience) {}

  // `short_now`: no page is free, and storage will give none back. True, once: for `patience`.
  [[nodiscard]] bool lasts(bool short_now, Time now) {
    if (!short_now) since_ = never;
    if (short_now && since_ == never) since_ = now;
    if (since_ == never || now - since_ < patience_) return false;
    since_ = never;
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
  Time since_ = never;
};

} // namespace fanin::builder
