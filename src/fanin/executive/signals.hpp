// SIGINT, SIGTERM and SIGHUP as events of the loop, which interrupt nothing. SIGHUP stays ignored
// if it was ignored at the start (nohup). The launcher tells its children by a signal, too, that
// another child has died.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <memory>

#include "fanin/base/descriptor.hpp"
#include "fanin/base/export.hpp"
#include "fanin/base/result.hpp"
#include "fanin/net/loop.hpp"

namespace fanin::executive {

// Tells a process that the process of this session (ProcessOptions::session) has ended. It reaches
// its Signals, also where they are made later, if the process was started with them blocked.
void tell_of_death(pid_t process, std::uint64_t session);

// Blocks these signals for the calling thread and those that it starts afterwards. They stay
// blocked after its end, so that nothing interrupts the end of the process. Thread: its loop.
class Signals final : public net::Service {
public:
  struct Handlers {
    std::function<void(pid_t sender)> on_signal;
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

  net::Loop& loop_;
  Handlers handlers_;
  Descriptor descriptor_;
  std::uint32_t polls_ = 0;
  bool check_ = true; // with the next poll
};

} // namespace fanin::executive
