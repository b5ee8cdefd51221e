#include "fanin/source/receive_source.hpp"

#include <fmt/format.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <cerrno>
#include <utility>

namespace fanin::source {
namespace {

constexpr std::size_t staging_size = 64U << 10;
constexpr std::size_t socket_bytes_per_read = 512U << 10;
constexpr std::size_t cost_per_call = 512; // in bytes; bounds a read() of a sender that drips
constexpr Duration accept_retry = std::chrono::milliseconds{100};
constexpr Duration quiet_time = std::chrono::seconds{1};

// Edge-triggered, so that data which waits while the queue is full does not wake the loop over and
// over.
bool watch(const Descriptor& epoll, int descriptor) {
  epoll_event event{};
  event.events = EPOLLIN | EPOLLRDHUP | EPOLLET;
  event.data.fd = descriptor;
  return epoll_ctl(epoll.get(), EPOLL_CTL_ADD, descriptor, &event) == 0;
}

Result<Descriptor> listen_on(const net::Url& url, const net::Address& address) {
  Descriptor socket(
      ::socket(address.get()->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!socket) return fail_errno(ErrorKind::internal, url.text(), errno);
  const int on = 1;
  (void)setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (::bind(socket.get(), address.get(), address.length) == 0 && ::listen(socket.get(), 8) == 0) {
    return socket;
  }
  const int error = errno;
  if (error == EADDRINUSE) {
    return fail(ErrorKind::refused,
                fmt::format("{}: the port is in use; `ss -ltnp` shows by whom. Choose another one",
                            url.text()));
  }
  return fail_errno(ErrorKind::refused, fmt::format("{}: listen", url.text()), error);
}

} // namespace

Result<std::unique_ptr<ReceiveSource>> ReceiveSource::make(ReceiveOptions options) {
  if (options.listen.scheme != "tcp") {
    return fail(ErrorKind::usage,
                fmt::format("{}: fragments are received over TCP: write tcp://host:port",
                            options.listen.text()));
  }
  Descriptor epoll(epoll_create1(EPOLL_CLOEXEC));
  if (!epoll) return fail_errno(ErrorKind::internal, "epoll_create1", errno);
  return std::unique_ptr<ReceiveSource>(new ReceiveSource(std::move(options), std::move(epoll)));
}

ReceiveSource::ReceiveSource(ReceiveOptions options, Descriptor epoll)
    : options_(std::move(options)),
      epoll_(std::move(epoll)),
      decoder_(options_.source, options_.check),
      staging_(staging_size) {}

Result<> ReceiveSource::listen() {
  const auto addresses = net::resolve(options_.listen, true);
  if (!addresses) return std::unexpected(addresses.error());
  Result<Descriptor> socket = fail(ErrorKind::not_found, options_.listen.text() + ": no address");
  for (const auto& address : *addresses) {
    socket = listen_on(options_.listen, address);
    if (socket) break;
  }
  if (!socket && !options_.listen_from.empty()) {
    return fail(socket.error().kind,
                fmt::format("{}: {}", options_.listen_from, socket.error().text));
  }
  if (!socket) return std::unexpected(socket.error());
  if (!watch(epoll_, socket->get())) return fail_errno(ErrorKind::internal, "epoll_ctl", errno);
  listener_ = std::move(*socket);
  log(LogLevel::info, fmt::format("waits for fragments at {}", listening_url()));
  return {};
}

Result<> ReceiveSource::start(EventNumber /*first_event*/, Time /*now*/) {
  restarted_ = true;
  ended_ = false;
  accept_again_ = true;
  if (listener_) return {};
  return listen();
}

std::string ReceiveSource::listening_url() const {
  return listener_ ? net::tcp::address_text(net::tcp::local_address(listener_.get()))
                   : std::string{};
}

void ReceiveSource::log(LogLevel level, std::string_view text) const {
  if (options_.log) options_.log(level, text);
}

// A sender that has not said its preface yet gives way to another, so that a stray connection does
// not keep the detector out. Beyond that, the first one stays.
void ReceiveSource::accept_all(FragmentQueue& queue) {
  while (true) {
    Descriptor socket(::accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!socket) {
      if (errno == EINTR || errno == ECONNABORTED) continue;
      accept_again_ = errno != EAGAIN; // out of descriptors, for instance: try again later
      return;
    }
    const std::string peer = net::tcp::address_text(net::tcp::peer_address(socket.get()));
    if (connection_ && decoder_.introduced()) {
      ++refused_;
      log(LogLevel::warning,
          fmt::format("{} refused: {} is already connected as the sender", peer, peer_));
      continue;
    }
    if (connection_)
      close_connection(queue, "another sender connected before this one had sent its preface");
    net::tcp::set_stream_options(socket.get(), {});
    if (!watch(epoll_, socket.get())) continue;
    connection_ = std::move(socket);
    peer_ = peer;
    readable_ = true;
    ++connections_;
    log(LogLevel::info, fmt::format("{} connected", peer_));
  }
}

void ReceiveSource::close_connection(FragmentQueue& queue, std::string_view why) {
  const ReceiveFault fault = decoder_.disconnect(queue);
  ++faults_[static_cast<std::size_t>(fault)];
  if (fault == ReceiveFault::none) {
    log(LogLevel::info, fmt::format("{} disconnected: {}", peer_, why));
  } else {
    log(LogLevel::warning, fmt::format("{} disconnected: {} ({})", peer_, name(fault), why));
  }
  connection_ = Descriptor{};
  staged_from_ = staged_to_ = 0;
  readable_ = false;
}

// One readv(): first into the page of the open fragment, the rest into the staging buffer, which is
// empty.
ReceiveSource::Received ReceiveSource::receive(FragmentQueue& queue) {
  const auto direct = decoder_.direct(queue);
  const std::array<iovec, 2> parts{
      {{direct.data(), direct.size()}, {staging_.data(), staging_.size()}}};
  const ssize_t got = ::readv(connection_.get(), parts.data(), 2);
  if (got < 0 && errno == EINTR) return Received::some;
  if (got < 0 && errno == EAGAIN) {
    readable_ = false;
    return Received::nothing;
  }
  if (got < 0) {
    close_connection(queue, fail_errno(ErrorKind::disconnected, "read", errno).error().text);
    return Received::closed;
  }
  if (got == 0) {
    close_connection(queue, "closed by the sender");
    return Received::closed;
  }
  const auto bytes = static_cast<std::size_t>(got);
  if (!direct.empty()) decoder_.received(std::min(bytes, direct.size()), queue);
  staged_from_ = 0;
  staged_to_ = bytes > direct.size() ? bytes - direct.size() : 0;
  return Received::some;
}

// The first at once, then at most once in a while.
void ReceiveSource::say_bad_checksums(const FragmentQueue& queue, Time now) {
  if (now < quiet_until_) return;
  quiet_until_ = now + quiet_time;
  bad_checksums_said_ = decoder_.bad_checksums();
  log(LogLevel::warning, fmt::format("bad checksum near event {} ({} so far)", queue.next_event(),
                                     bad_checksums_said_));
}

ReadResult ReceiveSource::read(FragmentQueue& queue, Time now) {
  if (std::exchange(restarted_, false) && queue.open()) queue.cancel();
  std::array<epoll_event, 4> events;
  const int count = epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), 0);
  for (int i = 0; i < count; ++i) {
    const int descriptor = events[static_cast<std::size_t>(i)].data.fd;
    if (descriptor == listener_.get()) accept_again_ = true;
    if (descriptor == connection_.get()) readable_ = true;
  }
  if (accept_again_) accept_all(queue);

  const Time wake = accept_again_ ? now + accept_retry : never;
  for (std::size_t bytes = 0; connection_ && bytes < socket_bytes_per_read;) {
    const auto staged = std::span(staging_).subspan(staged_from_, staged_to_ - staged_from_);
    const ReceiveDecoder::Taken taken = decoder_.take(staged, queue);
    staged_from_ += taken.bytes;
    bytes += taken.bytes;
    if (decoder_.bad_checksums() != bad_checksums_said_) [[unlikely]]
      say_bad_checksums(queue, now);
    switch (taken.state) {
    case ReceiveDecoder::State::full: return {.state = ReadState::waiting, .wake = wake};
    case ReceiveDecoder::State::fault: close_connection(queue, "closed here"); continue;
    case ReceiveDecoder::State::end:
      close_connection(queue, "end of the data");
      ended_ = true;
      listener_ = Descriptor{}; // whoever comes now is refused, and does not wait for ever
      continue;
    case ReceiveDecoder::State::hungry: break;
    }
    if (!readable_) return {.state = ReadState::waiting, .wake = wake};
    bytes += decoder_.direct(queue).size() + cost_per_call;
    if (receive(queue) != Received::some) break;
  }
  if (ended_) return {.state = ReadState::finished};
  if (connection_ && readable_) return {.state = ReadState::more};
  return {.state = ReadState::waiting, .wake = wake};
}

std::vector<SourceCounter> ReceiveSource::counters() const {
  std::vector<SourceCounter> result{{"connections", connections_},
                                    {"refused", refused_},
                                    {"bad_checksum", decoder_.bad_checksums()}};
  for (std::size_t i = 1; i < receive_faults; ++i) {
    result.push_back({name(static_cast<ReceiveFault>(i)), faults_[i]});
  }
  return result;
}

} // namespace fanin::source
