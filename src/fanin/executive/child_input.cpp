#include "fanin/executive/child_input.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <utility>

namespace fanin::executive {
namespace {

constexpr std::uint32_t polls_per_look = 1024; // some milliseconds of a loop that never rests

} // namespace

Result<Pipe> make_pipe() {
  constexpr int wished_bytes = 1 << 20;
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return fail_errno(ErrorKind::exhausted, "pipe", errno);
  fcntl(ends[1], F_SETPIPE_SZ, wished_bytes);
  return Pipe{Descriptor(ends[0]), Descriptor(ends[1])};
}

Result<Descriptor> input_with(const std::string& text) {
  Descriptor file(memfd_create("fanin-input", MFD_CLOEXEC));
  if (!file) return fail_errno(ErrorKind::exhausted, "memfd_create", errno);
  if (pwrite(file.get(), text.data(), text.size(), 0) != static_cast<ssize_t>(text.size()))
    return fail_errno(ErrorKind::exhausted, "memory for the input of a process", errno);
  return file;
}

std::vector<char*> pointers_to(std::vector<std::string>& words) {
  std::vector<char*> pointers;
  for (auto& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  return pointers;
}

LineInput::LineInput(net::Loop& loop, Descriptor descriptor, OnLine on_line,
                     std::function<void()> on_end)
    : loop_(loop),
      descriptor_(std::move(descriptor)),
      on_line_(std::move(on_line)),
      on_end_(std::move(on_end)) {
  loop_.add(*this);
}

LineInput::~LineInput() {
  if (!ended_) loop_.remove(*this);
}

void LineInput::end() { // at its end a pipe stays readable
  if (ended_) return;
  ended_ = true;
  loop_.remove(*this);
  if (on_end_) on_end_();
}

bool LineInput::poll() {
  if (ended_ || (!look_ && ++polls_ % polls_per_look != 0)) return false;
  return look_ = read_some();
}

bool LineInput::arm() {
  look_ = true;
  return true;
}

bool LineInput::read_some() {
  if (ended_) return false;
  std::array<char, 65536> buffer; // NOLINT: read() fills it
  const ssize_t got = read(descriptor_.get(), buffer.data(), buffer.size());
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return false;
  if (got <= 0) {
    end();
    return false;
  }
  text_.append(buffer.data(), static_cast<std::size_t>(got));
  std::size_t at = 0;
  for (auto end = text_.find('\n'); end != std::string::npos; end = text_.find('\n', at)) {
    on_line_(std::string_view{text_}.substr(at, end - at));
    at = end + 1;
  }
  text_.erase(0, at);
  if (text_.size() > line_max) end();
  return true;
}

void LineInput::read_rest() {
  constexpr int reads_most = 64; // more than a pipe holds
  for (int left = reads_most; left > 0 && read_some();) --left;
}

Result<std::unique_ptr<ProcessEnd>> ProcessEnd::make(net::Loop& loop, pid_t pid,
                                                     std::function<void()> on_end) {
  Descriptor descriptor(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
  if (!descriptor) return fail_errno(ErrorKind::unsupported, "pidfd_open", errno);
  fcntl(descriptor.get(), F_SETFD, FD_CLOEXEC);
  return std::unique_ptr<ProcessEnd>(
      new ProcessEnd(loop, pid, std::move(descriptor), std::move(on_end)));
}

ProcessEnd::ProcessEnd(net::Loop& loop, pid_t pid, Descriptor descriptor,
                       std::function<void()> on_end)
    : loop_(loop), pid_(pid), descriptor_(std::move(descriptor)), on_end_(std::move(on_end)) {
  loop_.add(*this);
}

ProcessEnd::~ProcessEnd() { end(); }

void ProcessEnd::end() { // it stays readable
  if (!ended_) loop_.remove(*this);
  ended_ = true;
}

bool ProcessEnd::poll() {
  siginfo_t info{};
  if (ended_ || waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT) != 0 ||
      info.si_pid != pid_) {
    return false;
  }
  end();
  on_end_();
  return false;
}

} // namespace fanin::executive
