// Which readout units take part in the run, as the event manager tells a builder unit. Each change
// begins an epoch, and a batch is built with the members of the epoch in which it was assigned.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "fanin/base/identity.hpp"

namespace fanin::builder {

// Knows no connection and no time.
class ReadoutMembers {
public:
  explicit ReadoutMembers(std::size_t readout_units) : members_(readout_units) {}

  // By readout unit; 0: it takes no part. False: it is not newer than what is known, or of another
  // number of readout units.
  [[nodiscard]] bool update(std::uint64_t epoch, std::span<const Incarnation> incarnations) {
    if (incarnations.size() != members_.size() || epoch <= epoch_) return false;
    epoch_ = epoch;
    for (std::size_t i = 0; i < members_.size(); ++i) {
      if (members_[i].incarnation != incarnations[i]) members_[i] = {incarnations[i], epoch};
    }
    return true;
  }
  // Nobody takes part.
  void clear() {
    epoch_ = 0;
    std::ranges::fill(members_, Member{});
  }

  [[nodiscard]] std::size_t size() const { return members_.size(); }
  [[nodiscard]] std::uint64_t epoch() const { return epoch_; } // 0: none yet
  [[nodiscard]] Incarnation incarnation(NodeId readout) const {
    return members_[readout].incarnation;
  }
  // Nothing more will come from it for a batch of epoch `assigned`: it took no part then, or it is
  // dead since and nothing is left on its connection. `connected`: the incarnation whose connection
  // is open; 0: none.
  [[nodiscard]] bool gives_nothing(NodeId readout, std::uint64_t assigned,
                                   Incarnation connected) const {
    const Member& member = members_[readout];
    if (member.since <= assigned) return member.incarnation == 0;
    return connected == 0 || connected == member.incarnation;
  }

private:
  struct Member {
    Incarnation incarnation = 0;
    std::uint64_t since = 0; // epoch
  };
  std::vector<Member> members_;
  std::uint64_t epoch_ = 0;
};

} // namespace fanin::builder
