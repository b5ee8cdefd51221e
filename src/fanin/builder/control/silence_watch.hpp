// Whether a conversation gets no answer over the connection that it uses: what is sent is
// swallowed, in one direction or both, and nobody is told.
#pragma once

#include <cstdint>

#include "fanin/base/clock.hpp"
#include "fanin/builder/deadline_clock.hpp"

namespace fanin::builder {

// It knows no connection. Pauses of its owner do not count.
class SilenceWatch {
public:
  static constexpr int checks = 8; // within the patience

  explicit SilenceWatch(Duration patience) : patience_(patience), clock_(patience / checks) {}

  // How often check() has to be called.
  [[nodiscard]] Duration period() const { return patience_ / checks; }
  // A new connection.
  void begin(Time now) {
    since_ = clock_.read(now, false);
    acknowledged_ = 0;
    welcome_ = false;
  }
  // `welcome`: the peer has answered the hello; `acknowledged`: pages that it has received;
  // `nothing_sent`: that it has not acknowledged. True: no answer has come for the patience.
  [[nodiscard]] bool check(Time now, bool welcome, std::uint64_t acknowledged, bool nothing_sent) {
    const Duration running = clock_.read(now, false);
    if (nothing_sent || welcome != welcome_ || acknowledged != acknowledged_) since_ = running;
    welcome_ = welcome;
    acknowledged_ = acknowledged;
    return running - since_ >= patience_;
  }

private:
  Duration patience_;
  DeadlineClock clock_;
  Duration since_{};
  std::uint64_t acknowledged_ = 0;
  bool welcome_ = false;
};

} // namespace fanin::builder
