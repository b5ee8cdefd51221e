#include "fanin/executive/report_pipe.hpp"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>

namespace fanin::executive {
namespace {
constexpr int look_again_ms = 1000; // whether the launcher still lives
constexpr std::size_t pending_max = 4U << 20;
} // namespace

ReportPipe::ReportPipe(int descriptor) : descriptor_(descriptor), launcher_(getppid()) {
  fcntl(descriptor, F_SETFL, fcntl(descriptor, F_GETFL) | O_NONBLOCK);
  fcntl(descriptor, F_SETFD, FD_CLOEXEC);
}

ReportPipe::~ReportPipe() {
  flush();
  while (!pending_.empty() && getppid() == launcher_) {
    pollfd watch{descriptor_.get(), POLLOUT, 0};
    (void)poll(&watch, 1, look_again_ms);
    flush();
  }
}

void ReportPipe::write(const json::Value& report) {
  flush();
  const std::string kind = report.at("report").text();
  const bool passing = kind == "progress" || kind == "summary" || kind == "usage";
  if (passing && !pending_.empty()) return;
  if (kind == "log" && pending_.size() > pending_max) return;
  pending_ += report.dump();
  pending_ += '\n';
  flush();
}

void ReportPipe::flush() {
  while (!pending_.empty()) {
    const ssize_t written = ::write(descriptor_.get(), pending_.data(), pending_.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0 && errno != EAGAIN) pending_.clear(); // nobody reads any more
    if (written <= 0) return;
    pending_.erase(0, static_cast<std::size_t>(written));
  }
}

} // namespace fanin::executive
