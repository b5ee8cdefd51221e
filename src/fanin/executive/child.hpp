// A process that the launcher has started: its reports, and how it ended.
#pragma once

#include <sys/resource.h>
#include <sys/types.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "fanin/base/json.hpp"
#include "fanin/base/result.hpp"
#include "fanin/net/loop.hpp"

namespace fanin::executive {

// Processor time in user and system mode together, in seconds.
[[nodiscard]] double cpu_seconds(const rusage& usage);

struct ChildExit {
  int status = 0;      // exit status; -1: killed
  int signal = 0;      // that killed it
  std::uint64_t peak_rss_bytes = 0;
  double cpu_s = 0;
  [[nodiscard]] std::string text() const; // "exit status 1", "killed by signal 9 (Killed)"
};

// Thread: its loop.
class Child {
public:
  struct Handlers {
    std::function<void(const json::Value&)> on_report;
    // After its last report. Must not destroy the child.
    std::function<void(const ChildExit&)> on_exit;
  };
  // Forks and executes `arguments` (the first is the program), which find the descriptor to report
  // on as the last two arguments: --report-fd N, and `input` on standard input. The child dies with
  // the calling thread's process and has a process group of its own, so that ^C on the terminal
  // does not reach it. Signals that are blocked here stay so there: one that comes early waits
  // until the child looks after it.
  [[nodiscard]] static Result<std::unique_ptr<Child>> start(net::Loop& loop,
                                                            std::vector<std::string> arguments,
                                                            const std::string& input,
                                                            Handlers handlers);
  ~Child(); // kills it, if it lives
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  [[nodiscard]] pid_t pid() const { return pid_; }
  [[nodiscard]] bool alive() const { return pid_ > 0; }
  void signal(int number) const;

private:
  class Reports;
  class Death;
  Child(pid_t pid, Handlers handlers);
  void finish();

  pid_t pid_;
  Handlers handlers_;
  std::unique_ptr<Reports> reports_;
  std::unique_ptr<Death> death_;
};

} // namespace fanin::executive
