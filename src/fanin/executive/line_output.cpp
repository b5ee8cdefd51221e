#include "fanin/executive/line_output.hpp"

#include <unistd.h>

#include <cerrno>
#include <utility>

namespace fanin::executive {
namespace {

constexpr Duration write_again = std::chrono::milliseconds{20};

} // namespace

LineOutput::LineOutput(net::Loop& loop, Descriptor descriptor)
    : loop_(loop), descriptor_(std::move(descriptor)), write_timer_([this] { flush(); }) {}

void LineOutput::send(const json::Value& line) {
  pending_ += line.dump() + "\n";
  flush();
}

void LineOutput::flush() {
  while (!pending_.empty()) {
    const ssize_t written = write(descriptor_.get(), pending_.data(), pending_.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0 && errno == EAGAIN) return write_timer_.start(loop_, loop_.now() + write_again);
    if (written <= 0) return pending_.clear();
    pending_.erase(0, static_cast<std::size_t>(written));
  }
}

} // namespace fanin::executive
