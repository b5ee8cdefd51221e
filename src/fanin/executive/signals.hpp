// SIGINT, SIGTERM and SIGHUP as events of the loop, which interrupt nothing. SIGHUP stays ignored
// if it was ignored at the start (nohup). A launcher uses real-time signals, since each of these
// arrives: of two SIGTERM that are pending together the kernel keeps one.
#pragma once

#include <sys/signalfd.h>
#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "fanin/base/clock.hpp"
#include "fanin/base/descriptor.hpp"
#include "fanin/base/export.hpp"
#include "fanin/base/result.hpp"
#include "fanin/net/loop.hpp"

namespace fanin::executive {

// By a launcher, to a process that it has started. They reach its Signals, also where these are
// made later, if the process was started with the signals blocked.
void ask_to_stop(pid_t process);
// The process of this session (ProcessOptions::session) has ended.
void tell_of_death(pid_t process, std::uint64_t session);

// A signal that asks this process to end is pending: it has blocked them, and its Signals reads
// them later. For what waits outside the loop.
[[nodiscard]] bool is_stop_pending();

struct StopSignal {
  bool by_launcher = false;
  bool hangup = false; // SIGHUP: the terminal was closed
  bool interrupt = false; // SIGINT: ^C
  pid_t sender = 0; // 0: the kernel, or a process that has no number here
};

// Whose signals stop a process. A service manager, or pkill, signals every process of a run. A
// child gets that signal, and then what its launcher asks for.
enum class SignalsFrom : std::uint8_t {
  anyone,
  launcher,
  launcher_or_first // also the first one of another; the launcher's first then adds nothing
};

// Which signals are a request: the first one to end in good order, the others to end at once.
class StopRequests {
public:
  explicit StopRequests(SignalsFrom from) : from_(from) {}

  // True if this signal asks for more than all before it. Those within burst_window of the first
  // one count as one: `timeout` and a terminal that is closed send two, a service manager SIGTERM
  // and SIGHUP.
  [[nodiscard]] FANIN_INTERNAL_API bool take(const StopSignal& signal, Time now);

  [[nodiscard]] bool at_once() const { return taken_ > 1; } // more than the first was asked for

  static constexpr Duration burst_window = std::chrono::milliseconds{100};

private:
  [[nodiscard]] bool counts(const StopSignal& signal, Time now) const;

  SignalsFrom from_;
  Time first_at_{};
  int counted_ = 0;
  int taken_ = 0;
};

// For the log, of a signal that is not the launcher's.
[[nodiscard]] std::string ignored_text(const StopSignal& signal);

// Blocks these signals for the calling thread and those that it starts afterwards. They stay
// blocked after its end, so that nothing interrupts the end of the process. Thread: its loop.
class Signals final : public net::Service {
public:
  struct Handlers {
    std::function<void(const StopSignal&)> on_signal;
    std::function<void(pid_t sender, std::uint64_t session)> on_death; // may be empty
  };
  // Errors: exhausted (no descriptor).
  [[nodiscard]] FANIN_INTERNAL_API static Result<std::unique_ptr<Signals>> make(net::Loop& loop,
                                                                                Handlers handlers);
  FANIN_INTERNAL_API ~Signals() override;
  Signals(const Signals&) = delete;
  Signals& operator=(const Signals&) = delete;

  bool poll() override;
  bool arm() override;
  [[nodiscard]] int descriptor() const override { return descriptor_.get(); }

private:
  Signals(net::Loop& loop, Handlers handlers, Descriptor descriptor);

  void take(const signalfd_siginfo& info);

  net::Loop& loop_;
  Handlers handlers_;
  Descriptor descriptor_;
  std::uint32_t polls_ = 0;
  bool check_ = true; // with the next poll
  Time look_until_{}; // with each one
};

} // namespace fanin::executive
