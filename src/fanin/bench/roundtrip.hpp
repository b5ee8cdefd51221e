// Round trips, the same for all contenders: when a message may leave, and how long each was under
// way. With a rate the time counts from when a message was meant to leave, not from when it could.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "fanin/base/clock.hpp"
#include "fanin/base/export.hpp"
#include "fanin/base/result.hpp"
#include "fanin/bench/processes.hpp"
#include "fanin/bench/spec.hpp"

namespace fanin::bench {

// Messages under way, at most.
[[nodiscard]] FANIN_INTERNAL_API std::size_t trips_max(const Spec& spec);

class Trips {
public:
  Trips(const Spec& spec, ProcessStats& stats, Time now);

  [[nodiscard]] bool may_send(Time now) const { return sent_ - back_ < limit_ && now >= next_; }
  void sent(Time now);
  void received(Time now); // replies come in order
  // When the next one may leave; never: when a reply has come.
  [[nodiscard]] Time next_send() const { return sent_ - back_ < limit_ ? next_ : never; }

private:
  ProcessStats& stats_;
  std::uint32_t size_;
  Duration period_{}; // 0: no rate
  std::size_t limit_; // of messages under way
  Time counted_from_;
  Time next_;
  std::vector<Time> stamps_; // ring of those under way
  std::uint64_t sent_ = 0;
  std::uint64_t back_ = 0;
};

// One end of a connection that carries messages of one size both ways.
class Pipe {
public:
  virtual ~Pipe() = default;
  [[nodiscard]] virtual Result<> send(std::span<const std::byte> message) = 0;
  // Touches its first byte. False: none came until then; one that polls gives up earlier.
  [[nodiscard]] virtual Result<bool> receive(Time until) = 0;
};

// Until terminated.
[[nodiscard]] FANIN_INTERNAL_API Result<> make_trips(Pipe& pipe, const Spec& spec,
                                                     ProcessStats& stats);
// Sends back a message for each that comes. Until its peer goes.
[[nodiscard]] FANIN_INTERNAL_API Result<> send_back(Pipe& pipe, const Spec& spec);

} // namespace fanin::bench
