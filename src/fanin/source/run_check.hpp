/// \file
/// Whether a sender is of the run of its source. A group that was forgotten and still runs must not
/// take the place of its successor.
#pragma once

#include <cstdint>
#include <string>

#include <fmt/format.h>

#include "fanin/base/identity.hpp"

namespace fanin::source {

class RunCheck {
public:
  /// That of the source.
  void joined(const RunIdentity& run) { own_ = run; }
  [[nodiscard]] RunNumber number() const { return own_.number; }

  /// Senders that name no run (a number of 0) are not compared. Groups that are started by
  /// themselves have ids of their own; but all builder units of one have the same.
  [[nodiscard]] bool takes(const RunIdentity& sender) {
    if (sender.number == 0 || own_.number == 0) return true;
    if (sender.number != own_.number || (id() != 0 && sender.id != id())) return false;
    group_id_ = sender.id;
    return true;
  }
  /// Human-readable; of one that it does not take.
  [[nodiscard]] std::string why_not(const RunIdentity& sender) const {
    if (sender.number != own_.number)
      return fmt::format("run {}; here run {} is built", sender.number, own_.number);
    return fmt::format("both have the number {}, but its id is {:x}, not {:x}: it is of an earlier "
                       "or later start of its group",
                       own_.number, sender.id, id());
  }

private:
  [[nodiscard]] std::uint64_t id() const { return own_.shared ? own_.id : group_id_; }

  RunIdentity own_;
  std::uint64_t group_id_ = 0; // of the first one that it took; 0: none yet
};

} // namespace fanin::source
