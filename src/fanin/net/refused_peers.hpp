/// \file
/// The report function of a transport that listens. It logs refused peers, which are no nodes of
/// the run, but not so often that a port scan fills the log. Who is evicted may be a node that
/// waits for the processor, and connects again: that is a warning only if it goes on.
#pragma once

#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "fanin/base/log_limiter.hpp"
#include "fanin/base/units.hpp"
#include "fanin/net/loop.hpp"
#include "fanin/net/transport.hpp"

namespace fanin::net {

class RefusedPeers {
public:
  RefusedPeers(Loop& loop, LogFunction log) : loop_(loop), log_(std::move(log)) {}

  static constexpr Duration eviction_pause = std::chrono::seconds{3}; ///< longer: it was over
  static constexpr Duration evictions_long = std::chrono::seconds{10};

  void operator()(CloseReason reason, std::string_view text) {
    if (reason == CloseReason::evicted) return evicted(text);
    const bool warn = reason == CloseReason::protocol_violation ||
                      reason == CloseReason::version_mismatch ||
                      reason == CloseReason::local || // something is missing here
                      reason == CloseReason::message_too_large;
    if (!warn) return log_(LogLevel::debug, text);
    limiter_.write(log_, loop_.now(), LogLevel::warning, text);
  }

private:
  void evicted(std::string_view text) {
    log_(LogLevel::debug, text);
    const Time now = loop_.now();
    if (now - std::exchange(last_eviction_, now) > eviction_pause) evictions_since_ = now;
    if (now - evictions_since_ < evictions_long) return;
    log_(LogLevel::warning,
         fmt::format("{}; for {} peers have connected without a hello: another program "
                     "connects here, or this host is overloaded",
                     text, format_duration(now - evictions_since_)));
    evictions_since_ = now; // the next line is as far away
  }

  Loop& loop_;
  LogFunction log_;
  LogLimiter limiter_;
  Time last_eviction_{};
  Time evictions_since_{};
};

} // namespace fanin::net
