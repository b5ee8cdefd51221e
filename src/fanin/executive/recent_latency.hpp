// The latencies of the last seconds, of a histogram that has those of the whole run.
#pragma once

#include <utility>

#include "fanin/base/clock.hpp"
#include "fanin/base/histogram.hpp"

namespace fanin::executive {

// Keeps two copies of the histogram, and replaces one of them every 5 s. Knows no event.
class RecentLatency {
public:
  static constexpr Duration period = std::chrono::seconds{5};

  // What was added in the last 5 to 10 s; at the start, since the first call. `all` only grows from
  // call to call.
  [[nodiscard]] Histogram in(const Histogram& all, Time now) {
    if (now - copied_at_ >= period) {
      before_ = std::exchange(last_, all);
      copied_at_ = now;
    }
    return all.since(before_);
  }

private:
  Histogram before_;
  Histogram last_;
  Time copied_at_{};
};

} // namespace fanin::executive
