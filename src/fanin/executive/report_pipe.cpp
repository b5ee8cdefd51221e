#include "fanin/executive/report_pipe.hpp"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>

namespace fanin::executive {
namespace {
constexpr int last_wait_ms = 5000;
constexpr std::size_t pending_max = 4U << 20;
} // namespace

ReportPipe::ReportPipe(int descriptor) : descriptor_(descriptor) {
  fcntl(descriptor_, F_SETFL, fcntl(descriptor_, F_GETFL) | O_NONBLOCK);
  fcntl(descriptor_, F_SETFD, FD_CLOEXEC);
  std::signal(SIGPIPE, SIG_IGN); // the launcher's death is noticed otherwise
}

ReportPipe::~ReportPipe() {
  flush();
  pollfd watch{descriptor_, POLLOUT, 0};
  while (!pending_.empty() && poll(&watch, 1, last_wait_ms) == 1 &&
         (watch.revents & POLLERR) == 0) {
    flush();
  }
  close(descriptor_);
}

void ReportPipe::write(const json::Value& report) {
  flush();
  const bool may_be_lost = report.at("report").text() == "progress";
  if ((may_be_lost && !pending_.empty()) || pending_.size() > pending_max) return;
  pending_ += report.dump();
  pending_ += '\n';
  flush();
}

void ReportPipe::flush() {
  while (!pending_.empty()) {
    const ssize_t written = ::write(descriptor_, pending_.data(), pending_.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0 && errno != EAGAIN) pending_.clear(); // nobody reads any more
    if (written <= 0) return;
    pending_.erase(0, static_cast<std::size_t>(written));
  }
}

} // namespace fanin::executive
