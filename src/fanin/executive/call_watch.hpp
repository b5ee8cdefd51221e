// Names the calls of a plug-in that block the loop of its node for long. Nothing else happens in
// the node meanwhile: other nodes may take it for dead.
#pragma once

#include <string>

#include "fanin/base/clock.hpp"
#include "fanin/base/log.hpp"

namespace fanin::executive {

// Thread: the loop's.
class CallWatch {
public:
  // `who` blocks `what`, as "source left" its "readout unit". The clock outlives it.
  CallWatch(const Clock& clock, LogFunction log, std::string who, std::string what);

  // A call under way, until it is destroyed.
  class Running {
  public:
    Running(CallWatch& watch, const char* function)
        : watch_(watch), function_(function), begin_(watch.clock_.now()) {}
    ~Running() { watch_.ended(function_, begin_); }
    Running(const Running&) = delete;
    Running& operator=(const Running&) = delete;

  private:
    CallWatch& watch_;
    const char* function_;
    Time begin_;
  };

private:
  void ended(const char* function, Time begin);

  const Clock& clock_;
  LogFunction log_;
  std::string who_;
  std::string what_;
  Duration blocked_said_{}; // the longest that was logged lately
  Time blocked_until_{}; // a shorter one is not logged before
};

} // namespace fanin::executive
