/// \file
/// The report function of a transport that listens. It logs refused peers, which are no nodes of
/// the run, but not so often that a port scan fills the log.
#pragma once

#include <string_view>
#include <utility>

#include "fanin/base/log_limiter.hpp"
#include "fanin/net/loop.hpp"
#include "fanin/net/transport.hpp"

namespace fanin::net {

class RefusedPeers {
public:
  RefusedPeers(Loop& loop, LogFunction log) : loop_(loop), log_(std::move(log)) {}

  void operator()(CloseReason reason, std::string_view text) {
    const bool warn = reason == CloseReason::protocol_violation ||
                      reason == CloseReason::version_mismatch ||
                      reason == CloseReason::local || // something is missing here
                      reason == CloseReason::message_too_large;
    if (!warn) return log_(LogLevel::debug, text);
    limiter_.write(log_, loop_.now(), LogLevel::warning, text);
  }

private:
  Loop& loop_;
  LogFunction log_;
  LogLimiter limiter_;
};

} // namespace fanin::net
