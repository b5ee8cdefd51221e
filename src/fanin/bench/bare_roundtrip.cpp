#include "fanin/bench/contender_ends.hpp"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "fanin/base/try.hpp"
#include "fanin/bench/bare_socket.hpp"
#include "fanin/bench/payload.hpp"
#include "fanin/bench/roundtrip.hpp"

namespace fanin::bench {
namespace {

constexpr int receive_spins = 100; // of one call of receive()

class SocketPipe final : public Pipe {
public:
  SocketPipe(Descriptor socket, const Spec& spec)
      : socket_(std::move(socket)), spin_(spec.wait == net::WaitPolicy::poll), buffer_(spec.size) {}

  // While there is no room to write, it reads: both ends may have much under way.
  Result<> send(std::span<const std::byte> message) override {
    while (!message.empty()) {
      const ssize_t count =
          ::send(socket_.get(), message.data(), message.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
      if (count >= 0) {
        message = message.subspan(static_cast<std::size_t>(count));
      } else if (errno != EAGAIN && errno != EINTR) {
        return fail_errno(ErrorKind::disconnected, "write", errno);
      } else {
        const auto read = FANIN_TRY(read_some(MSG_DONTWAIT));
        if (!read && !spin_) wait(POLLIN | POLLOUT, never);
      }
    }
    return {};
  }

  Result<bool> receive(Time until) override {
    const bool plain = !spin_ && until == never; // blocks in recv() itself
    for (int i = 0; messages_ == 0; ++i) {
      if (i == receive_spins) return false;
      if (!plain && !spin_ && !wait(POLLIN, until)) return false;
      const auto read = FANIN_TRY(read_some(plain ? 0 : MSG_DONTWAIT));
      if (!read && until != never && clock_.now() >= until) return false;
    }
    --messages_;
    return true;
  }

private:
  // Counts the messages that are complete. False: nothing was there.
  Result<bool> read_some(int flags) {
    const ssize_t count =
        recv(socket_.get(), buffer_.data() + have_, buffer_.size() - have_, flags);
    if (count < 0 && (errno == EAGAIN || errno == EINTR)) return false;
    if (count <= 0) return fail_errno(ErrorKind::disconnected, "read", errno);
    have_ += static_cast<std::size_t>(count);
    if (have_ < buffer_.size()) return true;
    touch(buffer_, false);
    have_ = 0;
    ++messages_;
    return true;
  }

  bool wait(short events, Time until) {
    pollfd watched{socket_.get(), events, 0};
    const Duration left = until == never ? Duration{} : std::max(Duration{}, until - clock_.now());
    const timespec time{left.count() / 1'000'000'000, left.count() % 1'000'000'000};
    return ppoll(&watched, 1, until == never ? nullptr : &time, nullptr) > 0;
  }

  MonotonicClock clock_;
  Descriptor socket_;
  bool spin_;
  std::vector<std::byte> buffer_;
  std::size_t have_ = 0;     // of the next one
  std::size_t messages_ = 0; // complete, and not yet asked for
};

} // namespace

Ends bare_tcp_roundtrip(const Spec& spec) {
  Ends ends;
  ends.latency = ends.connectors_count = true;
  ends.listen = [spec](std::size_t, ProcessStats& stats) -> Result<> {
    const auto listener = FANIN_TRY(listen_at(spec.url, spec.congestion));
    stats.listens_at(listening_address(listener));
    auto socket = FANIN_TRY(accept_one(listener));
    SocketPipe pipe{std::move(socket), spec};
    return send_back(pipe, spec);
  };
  ends.connect = [spec](std::size_t, const std::vector<std::string>& addresses,
                        ProcessStats& stats) -> Result<> {
    auto socket = FANIN_TRY(connect_to(addresses.front(), spec.congestion));
    SocketPipe pipe{std::move(socket), spec};
    return make_trips(pipe, spec, stats);
  };
  return ends;
}

} // namespace fanin::bench
