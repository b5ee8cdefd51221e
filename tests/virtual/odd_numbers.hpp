// Sources whose event numbers are not always right, as front ends give them: bits flip, numbers
// come twice, fall, jump or are left out, the first ones are wrong, a counter may begin elsewhere,
// and a source may die. They keep what they sent, to be compared with what was stored.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "fanin/base/random.hpp"
#include "virtual/virtual_system.hpp"

namespace fanin::testing {

class OddNumbers {
public:
  // Draws what each source does. Makes some of them optional, and has bytes checked. `counters`:
  // some have a narrow counter, an offset, a first number. Outlives the sources; `options` outlives
  // it.
  OddNumbers(std::uint64_t seed, VirtualSystemOptions& options, bool counters = false);
  ~OddNumbers();

  [[nodiscard]] std::unique_ptr<source::Source> make(const builder::SourceInfo& info);

  // Numbers are left out so often that others have to be there to judge them: no node is in
  // trouble, and no source dies or ends.
  [[nodiscard]] bool bursts() const { return bursts_; }

  // A good fragment (right number and size) of a source that `spared` names is stored exactly once,
  // and a wrong number is not taken, unless two faults that come close together explain it. Empty,
  // or the first thing that is wrong. The run has ended.
  [[nodiscard]] std::string check(VirtualSystem& system,
                                  const std::function<bool(const builder::SourceInfo&)>& spared);

private:
  friend class OddSource;
  struct Fragment { // as it was sent, or not
    EventNumber right = 0;
    EventNumber number = 0; // what the source said
    bool fault = false; // lost, of a wrong number, a repetition or too large
    bool gap = false; // numbers were left out everywhere right before it
    std::uint32_t stored = 0;
  };
  struct Sender {
    Random random{0};
    std::uint64_t fault_every = 0; // fragments, in the mean; 0: never
    std::uint64_t wrong_first = 0;
    int bits = 64; // of its counter
    std::int64_t offset = 0; // from its counter to event numbers
    bool has_first = false; // what it sends before its first event is garbage
    EventNumber shift = 0; // where it begins, beyond the others
    EventNumber limit = 0; // of the last time it was read
    std::uint64_t dies_at = ~std::uint64_t{0}; // it sends nothing from the event of this index on
    std::uint64_t ends_at = ~std::uint64_t{0}; // it says that it has ended there
    std::vector<Fragment> sent;
  };
  struct Jump { // numbers that no source has, right before the event of this index
    std::uint64_t index = 0;
    EventNumber count = 0;
  };
  void draw_bursts(Random random);
  void draw_counters(Random random, VirtualSystemOptions& options);
  // Of the events that happen, one after the other.
  [[nodiscard]] EventNumber number_of(std::uint64_t index) const;
  [[nodiscard]] std::uint64_t index_from(EventNumber number) const;
  [[nodiscard]] bool jumps_at(std::uint64_t index) const;

  [[nodiscard]] std::string count_stored(const VirtualSystem& system);
  [[nodiscard]] static std::vector<EventNumber> given_up_until(const VirtualSystem& system,
                                                               const builder::SourceInfo& info);
  [[nodiscard]] std::string check(const builder::SourceInfo& info,
                                  const std::vector<EventNumber>& silences);
  [[nodiscard]] bool explained(const builder::SourceInfo& info, std::size_t at) const;
  [[nodiscard]] std::size_t begins_afresh_at(const Sender& sender) const;
  [[nodiscard]] bool looks_right(const Sender& sender, std::size_t at) const;
  [[nodiscard]] bool looks_wrong(const Sender& sender, std::size_t at) const;
  [[nodiscard]] bool confirmed(SourceId source, std::size_t at) const;
  [[nodiscard]] std::string history(SourceId source, std::size_t at) const;

  const builder::System& system_;
  double rate_hz_;
  EventNumber first_ = 0;
  EventNumber step_ = 1; // numbers an event, in the mean; the others are left out everywhere
  std::vector<Jump> jumps_;
  bool bursts_ = false;
  std::map<SourceId, Sender> senders_;
};

} // namespace fanin::testing
