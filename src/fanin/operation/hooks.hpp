// Programs of the user that run control runs around runs: one holds the trigger of another system,
// another writes into an electronic logbook.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fanin/base/clock.hpp"
#include "fanin/base/json.hpp"
#include "fanin/base/log.hpp"
#include "fanin/net/loop.hpp"

namespace fanin::operation {

enum class HookMoment : std::uint8_t {
  before_start, // it may veto
  after_start,
  before_stop,
  after_stop,
  unplanned_end // a run has ended, and nobody had asked for it
};
[[nodiscard]] std::string_view name(HookMoment moment); // "before-start"
[[nodiscard]] std::optional<HookMoment> hook_moment_named(std::string_view name);

// Thread: its loop, which outlives it.
class Hooks {
public:
  struct Options {
    std::map<HookMoment, std::string> programs; // a path each
    Duration limit = std::chrono::seconds{30}; // then it is killed, and has failed
    std::function<void(LogLevel level, std::string text)> log;
  };
  // Why it failed: the last line that it has written, or how it ended; empty: it has not.
  using Done = std::function<void(const std::string& why)>;

  Hooks(net::Loop& loop, Options options);
  ~Hooks(); // kills those that run

  // Gives `about` to the program of that moment as JSON on standard input. Without one it is done
  // at once.
  void run(HookMoment moment, const json::Value& about, Done done);
  [[nodiscard]] bool has(HookMoment moment) const { return options_.programs.contains(moment); }

private:
  class Running;
  void end(const Running* running, const std::string& why);

  net::Loop& loop_;
  Options options_;
  std::map<const Running*, std::unique_ptr<Running>> running_;
  std::vector<std::unique_ptr<Running>> ended_; // until the next one
};

} // namespace fanin::operation
