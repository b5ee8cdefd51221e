// Processes that the launcher has started: their reports, and how they ended.
#pragma once

#include <sys/resource.h>
#include <sys/types.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "fanin/base/export.hpp"
#include "fanin/base/json.hpp"
#include "fanin/base/result.hpp"
#include "fanin/executive/requests.hpp"
#include "fanin/net/loop.hpp"

namespace fanin::executive {

// Processor time in user and system mode together, in seconds.
[[nodiscard]] FANIN_INTERNAL_API double cpu_seconds(const rusage& usage);

struct ChildExit {
  int status = 0;      // exit status; -1: killed
  int signal = 0;      // that killed it
  std::uint64_t peak_rss_bytes = 0;
  double cpu_s = 0;
  std::string why; // what is known beside; empty: nothing
  [[nodiscard]] FANIN_INTERNAL_API std::string
  text() const; // "exit status 1", "killed by signal 9 (Killed)"
};

// Thread: that of the launcher's loop.
class Child {
public:
  struct Handlers {
    std::function<void(const json::Value&)> on_report;
    // After its last report. Must not destroy the child.
    std::function<void(const ChildExit&)> on_exit;
  };
  Child() = default;
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  virtual ~Child() = default; // kills it, if it lives

  [[nodiscard]] virtual pid_t pid() const = 0; // 0: it has ended
  // No effect if it has ended.
  virtual void stop() = 0; // asks it to end in good order; the second time, at once
  virtual void kill() = 0;
  virtual void request(Request request) = 0;
  [[nodiscard]] bool alive() const { return pid() > 0; }
};

// Where a launcher gets its processes from: this host, or a test.
class Children {
public:
  virtual ~Children() = default;
  // Starts the configuration's process that has this place with these arguments (the first is the
  // program) and `input` on standard input.
  [[nodiscard]] virtual Result<std::unique_ptr<Child>> start(std::size_t place,
                                                             std::vector<std::string> arguments,
                                                             const std::string& input,
                                                             Child::Handlers handlers) = 0;
  // Tells a process that the process of that session has died.
  virtual void tell_of_death(Child& child, std::uint64_t session) = 0;
};

// The children of this process. They find the descriptors to report on and to take requests from
// as the last arguments: --report-fd N --request-fd N. A child dies with the calling thread's
// process and has a process group of its own, so that ^C on the terminal does not reach it. Signals
// that are blocked here are blocked there, too: one that comes early waits until the child handles
// it.
class ForkedChildren final : public Children {
public:
  explicit ForkedChildren(net::Loop& loop) : loop_(loop) {}
  [[nodiscard]] Result<std::unique_ptr<Child>> start(std::size_t place,
                                                     std::vector<std::string> arguments,
                                                     const std::string& input,
                                                     Child::Handlers handlers) override;
  void tell_of_death(Child& child, std::uint64_t session) override;

private:
  net::Loop& loop_;
};

} // namespace fanin::executive
