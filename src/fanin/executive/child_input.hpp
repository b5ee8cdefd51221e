// What is watched of another process: the lines that it writes, and its end.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "fanin/base/descriptor.hpp"
#include "fanin/base/export.hpp"
#include "fanin/base/result.hpp"
#include "fanin/net/loop.hpp"

namespace fanin::executive {

struct Pipe { // closed by exec()
  Descriptor read;
  Descriptor write;
};
// Large enough for many lines, if the kernel allows that. Errors: exhausted.
[[nodiscard]] Result<Pipe> make_pipe();
// A file in memory that can be read from its beginning. Errors: exhausted.
[[nodiscard]] FANIN_INTERNAL_API Result<Descriptor> input_with(const std::string& text);
// As exec() takes them, for as long as the words live.
[[nodiscard]] FANIN_INTERNAL_API std::vector<char*> pointers_to(std::vector<std::string>& words);

// While its loop has other work, it looks for lines only now and then: that costs a system call.
// Thread: its loop. The descriptor must not block.
class FANIN_INTERNAL_API LineInput final : public net::Service {
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
  bool arm() override;
  // Reads what has been written when the process has ended. It does not wait for others that hold
  // the pipe open.
  void read_rest();

  static constexpr std::size_t line_max = 64U << 20;

private:
  [[nodiscard]] bool read_some();
  void end();

  net::Loop& loop_;
  Descriptor descriptor_;
  OnLine on_line_;
  std::function<void()> on_end_;
  std::string text_;
  std::uint32_t polls_ = 0;
  bool look_ = true; // with the next poll
  bool ended_ = false;
};

// Calls `on_end` once when a child of this process has ended; waitpid() has not been called for it
// yet.
class FANIN_INTERNAL_API ProcessEnd final : public net::Service {
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
