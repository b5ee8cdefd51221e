// Finds out whether the run has come to a dead end: fragments come, and nothing of any source is
// accepted any more, since its numbers are below those of the run.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "fanin/base/clock.hpp"
#include "fanin/builder/system.hpp"
#include "fanin/source/number_judge.hpp"
#include "fanin/wire/control.hpp"
#include "fanin/wire/reasons.hpp"

namespace fanin::builder {

// Times are those of a clock that stands still while its owner does.
class RefusalWatch {
public:
  // A dead end has lasted for so long: a source that is behind may pass the others until then.
  static constexpr Duration patience = std::chrono::seconds{3};
  // Fragments may come in spills, or seldom. A pause between them counts for so long: what comes
  // late before a pause and after it, while the others begin again, is no dead end.
  static constexpr Duration pause_max = patience / 2;

  explicit RefusalWatch(std::size_t sources) : sources_(sources) {}

  // A status of a readout unit has come; `first`: the place of its first source.
  void count(std::size_t first, std::span<const wire::SourceCounters> counters, Duration now) {
    for (const wire::SourceCounters& counter : counters) {
      Source& source = sources_[first++];
      const std::uint64_t dropped = refusals(counter);
      const std::uint64_t before = std::exchange(source.dropped, dropped);
      const bool accepted = std::exchange(source.accepted, counter.accepted) != counter.accepted;
      if (accepted) begin_again();
      if (accepted || dropped <= before) continue; // they may have come before
      if (refused_ > 0) lasted_ += std::min(now - refused_at_, pause_max);
      refused_at_ = now;
      refused_ += dropped - before;
      source.refused += dropped - before;
      source.last_refused = counter.last_refused;
    }
  }

  struct DeadEnd {
    std::size_t source = 0; // of which most was refused, if any of it was accepted before
    EventNumber last_refused = 0; // the last number of it
    // For people; `end`: where the run is.
    [[nodiscard]] std::string text(const System& system, EventNumber end) const {
      return fmt::format(
          "nothing that the sources send is accepted any more: source {} is at number {}, and the "
          "run is at event {}. Numbers before may be left over from an earlier run, or its counter "
          "was reset: give the number at which it begins (key `first` of the source), or start a "
          "new run",
          system.sources[source].name, last_refused, end);
    }
  };
  [[nodiscard]] std::optional<DeadEnd> find() const {
    if (lasted_ < patience || refused_ < source::enough_in_a_row) return {};
    // One of which nothing was accepted has not brought the run to where it is.
    const auto most = std::ranges::max_element(sources_, {}, [](const Source& source) {
      return std::pair{source.refused > 0 && source.accepted > 0, source.refused};
    });
    return DeadEnd{static_cast<std::size_t>(most - sources_.begin()), most->last_refused};
  }

private:
  // A fragment was accepted.
  void begin_again() {
    lasted_ = {};
    refused_ = 0;
    for (Source& source : sources_) source.refused = 0;
  }
  // What is too large, comes once more, or comes before a counter is reset (the key `first`), says
  // nothing of where the run is.
  static std::uint64_t refusals(const wire::SourceCounters& counter) {
    using enum wire::DropReason;
    std::uint64_t sum = 0;
    for (const wire::DropReason reason : {number_back, number_jump, late})
      sum += counter.dropped[static_cast<std::size_t>(reason)];
    return sum;
  }

  struct Source {
    std::uint64_t accepted = 0; // as its readout unit said
    std::uint64_t dropped = 0; // likewise, for these reasons
    std::uint64_t refused = 0; // of these, since a fragment of any source was accepted
    EventNumber last_refused = 0;
  };
  std::vector<Source> sources_;
  // Since a fragment of any source was accepted:
  std::uint64_t refused_ = 0; // fragments
  Duration lasted_{}; // in which they came
  Duration refused_at_{}; // the last ones
};

} // namespace fanin::builder
