// SIGINT, SIGTERM and SIGHUP as something the loop looks after, and not as interruptions.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>

#include "fanin/base/descriptor.hpp"
#include "fanin/base/result.hpp"
#include "fanin/net/loop.hpp"

namespace fanin::executive {

// Blocks these signals for the calling thread and those that it starts afterwards. They stay so
// after its end: who takes down what has ended is not to be interrupted. Thread: its loop.
class Signals final : public net::Service {
public:
  // Errors: exhausted (no descriptor).
  [[nodiscard]] static Result<std::unique_ptr<Signals>>
  make(net::Loop& loop, std::function<void(pid_t sender)> on_signal);
  ~Signals() override;
  Signals(const Signals&) = delete;
  Signals& operator=(const Signals&) = delete;

  bool poll() override;
  bool arm() override;
  [[nodiscard]] int descriptor() const override { return descriptor_.get(); }

private:
  Signals(net::Loop& loop, std::function<void(pid_t)> on_signal, Descriptor descriptor);

  net::Loop& loop_;
  std::function<void(pid_t)> on_signal_;
  Descriptor descriptor_;
  std::uint32_t polls_ = 0;
  bool look_ = true; // with the next poll
};

} // namespace fanin::executive
