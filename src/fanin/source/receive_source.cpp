#include "fanin/source/receive_source.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <cerrno>
#include <utility>

namespace fanin::source {
namespace {

constexpr std::size_t staging_size = 64U << 10;
constexpr std::size_t socket_bytes_per_read = 512U << 10;
// In bytes; they bound a read() of a sender that drips, and of senders that come and go.
constexpr std::size_t cost_per_call = 512;
constexpr std::size_t cost_per_connection = 16U << 10;
constexpr Duration accept_retry = std::chrono::milliseconds{100};
constexpr Duration quiet_time = std::chrono::seconds{1};
// Longer than a lost packet takes to be sent again.
constexpr Duration preface_time = std::chrono::milliseconds{500};

// Edge-triggered, so that data which waits while the queue is full does not wake the loop over and
// over.
bool watch(const Descriptor& epoll, int descriptor) {
  epoll_event event{};
  event.events = EPOLLIN | EPOLLRDHUP | EPOLLET;
  event.data.fd = descriptor;
  return epoll_ctl(epoll.get(), EPOLL_CTL_ADD, descriptor, &event) == 0;
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
      staging_(staging_size) {
  if (!options_.log) options_.log = [](LogLevel, std::string_view) {};
}

Result<> ReceiveSource::prepare() {
  auto addresses =
      options_.look_up ? options_.look_up(options_.listen) : net::resolve(options_.listen, true);
  if (!addresses) {
    const std::string& from = options_.listen_from;
    return fail(addresses.error().kind,
                fmt::format("{}{}{}", from, from.empty() ? "" : ": ", addresses.error().text));
  }
  addresses_ = std::move(*addresses);
  return {};
}

Result<> ReceiveSource::listen() {
  if (addresses_.empty()) {
    if (auto prepared = prepare(); !prepared) return prepared;
  }
  auto socket = net::bind_and_listen(options_.listen, addresses_);
  if (!socket && !options_.listen_from.empty()) {
    return fail(socket.error().kind,
                fmt::format("{}: {}", options_.listen_from, socket.error().text));
  }
  if (!socket) return std::unexpected(socket.error());
  if (!watch(epoll_, socket->get())) return fail_errno(ErrorKind::internal, "epoll_ctl", errno);
  listener_ = std::move(*socket);
  options_.log(LogLevel::info, fmt::format("waits for fragments at {}", listening_url()));
  return {};
}

Result<> ReceiveSource::start(EventNumber /*first_event*/, Time /*now*/) {
  restarted_ = true;
  ended_ = false;
  others_wait_ = true;
  if (listener_) return {};
  return listen();
}

std::string ReceiveSource::listening_url() const {
  return listener_ ? net::address_text(net::local_address(listener_.get())) : std::string{};
}

Descriptor ReceiveSource::accept(net::Address& peer) const {
  while (true) {
    Descriptor socket = net::accept_from(listener_.get(), peer);
    if (socket || (errno != EINTR && errno != ECONNABORTED)) return socket;
  }
}

// True if there is a connection now.
bool ReceiveSource::accept_next(Time now) {
  net::Address peer;
  Descriptor socket = accept(peer);
  if (!socket) {
    others_wait_ = errno != EAGAIN; // out of descriptors, for instance: try again later
    if (others_wait_) {
      warnings_.say(options_.log, now, LogLevel::warning,
                    fail_errno(ErrorKind::exhausted, "accept", errno).error().text);
    }
    return false;
  }
  peer_ = net::address_text(peer);
  net::set_stream_options(socket.get(), {});
  if (!watch(epoll_, socket.get())) {
    ++refused_;
    warnings_.say(options_.log, now, LogLevel::warning,
                  fmt::format("{} refused: {}", peer_,
                              fail_errno(ErrorKind::exhausted, "epoll_ctl", errno).error().text));
    return false;
  }
  connection_ = std::move(socket);
  readable_ = true;
  waiting_said_ = false;
  quiet_since_ = now;
  ++connections_;
  comings_.say(options_.log, now, LogLevel::info, fmt::format("{} connected", peer_));
  return true;
}

// The connection has nothing to read. Whether it has ended is not known as long as the end that its
// sender sent is under way; so one that has a sender keeps the others waiting, and one that may be
// no sender gives way to them after a while. Returns when to look again.
Time ReceiveSource::make_way(FragmentQueue& queue, Time now) {
  if (!others_wait_ || waiting_said_) return never;
  pollfd listener{.fd = listener_.get(), .events = POLLIN, .revents = 0};
  others_wait_ = ::poll(&listener, 1, 0) == 1;
  if (!others_wait_) return never;
  const Time due = quiet_since_ + (decoder_.introduced() ? quiet_time : preface_time);
  if (now < due) return due;
  if (!decoder_.introduced()) {
    close_connection(queue, now, "another sender waits", ReceiveFault::no_preface);
    return never;
  }
  waiting_said_ = true;
  warnings_.say(options_.log, now, LogLevel::warning,
                fmt::format("another sender is connected, and waits until {} has closed its "
                            "connection: there is one sender at a time",
                            peer_));
  return never;
}

void ReceiveSource::close_connection(FragmentQueue& queue, Time now, std::string_view why,
                                     ReceiveFault found) {
  const ReceiveFault within = decoder_.disconnect(queue);
  const ReceiveFault fault = found == ReceiveFault::none ? within : found;
  ++faults_[static_cast<std::size_t>(fault)];
  if (fault == ReceiveFault::none) {
    comings_.say(options_.log, now, LogLevel::info, fmt::format("{} disconnected: {}", peer_, why));
  } else {
    warnings_.say(options_.log, now, LogLevel::warning,
                  fmt::format("{} disconnected: {} ({})", peer_, name(fault), why));
  }
  connection_ = Descriptor{};
  staged_from_ = staged_to_ = 0;
  readable_ = false;
}

// Whoever waits is refused, and whoever comes later: nobody waits for ever.
void ReceiveSource::end_data(FragmentQueue& queue, Time now) {
  close_connection(queue, now, "end of the data");
  ended_ = true;
  const std::uint64_t before = refused_;
  net::Address peer;
  for (int i = 0; i < SOMAXCONN && accept(peer); ++i) ++refused_;
  listener_ = Descriptor{};
  if (refused_ == before) return;
  warnings_.say(options_.log, now, LogLevel::warning,
                fmt::format("{} connections refused: the data had ended before their turn came",
                            refused_ - before));
}

// One readv(): first into the page of the open fragment, the rest into the staging buffer, which is
// empty.
void ReceiveSource::receive(FragmentQueue& queue, Time now) {
  const auto direct = decoder_.direct(queue);
  const std::array<iovec, 2> parts{
      {{direct.data(), direct.size()}, {staging_.data(), staging_.size()}}};
  const ssize_t got = ::readv(connection_.get(), parts.data(), 2);
  if (got < 0 && errno == EINTR) return;
  if (got < 0 && errno == EAGAIN) {
    readable_ = false;
    return;
  }
  if (got < 0) {
    return close_connection(queue, now,
                            fail_errno(ErrorKind::disconnected, "read", errno).error().text);
  }
  if (got == 0) return close_connection(queue, now, "closed by the sender");
  quiet_since_ = now;
  const auto bytes = static_cast<std::size_t>(got);
  if (!direct.empty()) decoder_.received(std::min(bytes, direct.size()), queue);
  staged_from_ = 0;
  staged_to_ = bytes > direct.size() ? bytes - direct.size() : 0;
}

// The first at once, then at most once in a while.
void ReceiveSource::say_bad_checksums(const FragmentQueue& queue, Time now) {
  if (now < quiet_until_) return;
  quiet_until_ = now + quiet_time;
  bad_checksums_said_ = decoder_.bad_checksums();
  options_.log(LogLevel::warning, fmt::format("bad checksum near event {} ({} so far)",
                                              queue.next_event(), bad_checksums_said_));
}

void ReceiveSource::look_for_events() {
  std::array<epoll_event, 4> events;
  const int count = epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), 0);
  for (int i = 0; i < count; ++i) {
    const int descriptor = events[static_cast<std::size_t>(i)].data.fd;
    if (descriptor == listener_.get()) others_wait_ = true;
    if (descriptor == connection_.get()) readable_ = true;
  }
}

// A connection is read up to its end before the next one is accepted: nothing that a sender has
// sent is thrown away because another one came, however long this side did not read.
ReadResult ReceiveSource::read(FragmentQueue& queue, Time now) {
  if (std::exchange(restarted_, false) && queue.open()) queue.cancel();
  look_for_events();
  for (std::size_t bytes = 0; !ended_ && bytes < socket_bytes_per_read;) {
    if (!connection_) {
      bytes += cost_per_connection;
      if (others_wait_ && accept_next(now)) continue;
      return {.state = ReadState::waiting, .wake = others_wait_ ? now + accept_retry : never};
    }
    const auto staged = std::span(staging_).subspan(staged_from_, staged_to_ - staged_from_);
    const ReceiveDecoder::Taken taken = decoder_.take(staged, queue);
    staged_from_ += taken.bytes;
    bytes += taken.bytes;
    if (decoder_.bad_checksums() != bad_checksums_said_) [[unlikely]]
      say_bad_checksums(queue, now);
    switch (taken.state) {
    case ReceiveDecoder::State::full: return {.state = ReadState::waiting};
    case ReceiveDecoder::State::fault: close_connection(queue, now, "closed here"); continue;
    case ReceiveDecoder::State::end: end_data(queue, now); continue;
    case ReceiveDecoder::State::hungry: break;
    }
    if (!readable_) {
      const Time wake = make_way(queue, now);
      if (connection_) return {.state = ReadState::waiting, .wake = wake};
      continue;
    }
    bytes += decoder_.direct(queue).size() + cost_per_call;
    receive(queue, now);
  }
  return {.state = ended_ ? ReadState::finished : ReadState::more};
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
