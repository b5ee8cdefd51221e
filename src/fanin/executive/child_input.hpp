// What is watched of another process: the lines that it writes, and its end.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "fanin/base/descriptor.hpp"
#include "fanin/base/result.hpp"
#include "fanin/net/loop.hpp"

namespace fanin::executive {

// Thread: its loop. The descriptor must not block.
class LineInput final : public net::Service {
public:
  using OnLine = std::function<void(std::string_view)>;
  // `on_end`: nobody writes any more, or a line has more than `line_max` bytes.
  LineInput(net::Loop& loop, Descriptor descriptor, OnLine on_line,
            std::function<void()> on_end = {});
  ~LineInput() override;
  LineInput(const LineInput&) = delete;
  LineInput& operator=(const LineInput&) = delete;

  [[nodiscard]] int descriptor() const override { return descriptor_.get(); }
  bool poll() override; // true: it has read something
  // Reads what has been written when the process has ended. It does not wait for others that hold
  // the pipe open.
  void read_rest();

  static constexpr std::size_t line_max = 64U << 20;

private:
  void end();

  net::Loop& loop_;
  Descriptor descriptor_;
  OnLine on_line_;
  std::function<void()> on_end_;
  std::string text_;
  bool ended_ = false;
};

// Calls `on_end` once when a child of this process has ended; waitpid() has not been called for it
// yet.
class ProcessEnd final : public net::Service {
public:
  // Errors: unsupported.
  [[nodiscard]] static Result<std::unique_ptr<ProcessEnd>> make(net::Loop& loop, pid_t pid,
                                                                std::function<void()> on_end);
  ~ProcessEnd() override;
  ProcessEnd(const ProcessEnd&) = delete;
  ProcessEnd& operator=(const ProcessEnd&) = delete;

  [[nodiscard]] int descriptor() const override { return descriptor_.get(); }
  bool poll() override;

private:
  ProcessEnd(net::Loop& loop, pid_t pid, Descriptor descriptor, std::function<void()> on_end);
  void end();

  net::Loop& loop_;
  pid_t pid_;
  Descriptor descriptor_;
  std::function<void()> on_end_;
  bool ended_ = false;
};

} // namespace fanin::executive
