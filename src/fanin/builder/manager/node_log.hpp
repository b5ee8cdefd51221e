// Log lines that say that a node came or went.
#pragma once

#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "fanin/base/log_limiter.hpp"
#include "fanin/builder/control/node_environment.hpp"
#include "fanin/builder/control/node_outbox.hpp"
#include "fanin/builder/system.hpp"

namespace fanin::builder {

// A peer that repeats the hello of a node can let it come and go as often as it likes. One that its
// launcher starts again and again does so at most three times in a second: all of it is logged.
class NodeLog {
public:
  // Both outlive it.
  NodeLog(const System& system, const NodeEnvironment& environment)
      : system_(system),
        environment_(environment),
        readouts_(system.readout_units.size()),
        builders_(system.builder_units.size()) {}

  void write(NodeKey key, LogLevel level, std::string_view what) {
    const bool readout = key.is_readout();
    const auto& names = readout ? system_.readout_units : system_.builder_units;
    Lines& lines = (readout ? readouts_ : builders_)[key.node];
    LogLimiter& limiter = level == LogLevel::info ? lines.came : lines.went;
    limiter.write(
        environment_.log, environment_.loop->now(), level,
        fmt::format("{} unit '{}' {}", readout ? "readout" : "builder", names[key.node], what));
  }

private:
  struct Lines {
    LogLimiter came;
    LogLimiter went;
  };

  const System& system_;
  const NodeEnvironment& environment_;
  std::vector<Lines> readouts_; // by node
  std::vector<Lines> builders_;
};

} // namespace fanin::builder
