// For tests: a `receive` source with its queue, and sockets that send to it.
#pragma once

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <cerrno>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "fanin/net/stream/tcp_streams.hpp"
#include "fanin/net/tcp_socket.hpp"
#include "fanin/source/receive_source.hpp"
#include "fanin/source/testing/sender.hpp"

namespace fanin::source::testing {

inline std::shared_ptr<ReceivePort> new_port(const char* url = "tcp://127.0.0.1:0") {
  static net::TcpStreams streams;
  return ReceivePort::make(net::Url::parse(url).value(), streams).value();
}

// A blocking socket to the source.
class SenderSocket {
public:
  explicit SenderSocket(const ReceiveSource& source) {
    const auto url = net::Url::parse(source.listening_url()).value();
    const auto address = net::resolve(url, false).value().front();
    socket_ = Descriptor(::socket(address.get()->sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    EXPECT_EQ(::connect(socket_.get(), address.get(), address.length), 0);
  }
  // What fits without waiting.
  std::size_t send_some(std::span<const std::byte> bytes) const {
    const ssize_t sent =
        ::send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    return sent > 0 ? static_cast<std::size_t>(sent) : 0;
  }
  void send(const Bytes& bytes) const { ASSERT_EQ(send_some(bytes), bytes.size()); }
  // What has come from the source, of at most `size` bytes.
  [[nodiscard]] Bytes received(std::size_t size) const {
    Bytes bytes(size);
    const ssize_t got = ::recv(socket_.get(), bytes.data(), size, MSG_DONTWAIT);
    bytes.resize(got > 0 ? static_cast<std::size_t>(got) : 0);
    return bytes;
  }
  // Bytes that have come and were not received.
  [[nodiscard]] std::size_t available() const {
    int bytes = 0;
    EXPECT_EQ(::ioctl(socket_.get(), FIONREAD, &bytes), 0);
    return static_cast<std::size_t>(bytes);
  }
  // True once the source has closed its end.
  [[nodiscard]] bool closed() const {
    char byte = 0;
    return ::recv(socket_.get(), &byte, 1, MSG_DONTWAIT) == 0 || errno == ECONNRESET;
  }
  // Waits. How many bytes there were; 0: it was closed in order; else the negative error.
  [[nodiscard]] ssize_t receive(std::span<std::byte> room) const {
    const ssize_t got = ::recv(socket_.get(), room.data(), room.size(), 0);
    return got < 0 ? -errno : got;
  }
  void close() { socket_ = Descriptor{}; }
  // As the source's log has it.
  [[nodiscard]] std::string address() const {
    return net::address_text(net::local_address(socket_.get()));
  }

private:
  Descriptor socket_;
};

struct ReceiveBench {
  explicit ReceiveBench(std::uint32_t window = 1024, std::uint32_t pages = 64,
                        ReceiveOptions options = {}, bool started = true)
      : fixture({.source = 5, .window = window}, {.page_size = 65536, .pages = pages}),
        source(ReceiveSource::make(completed(std::move(options))).value()) {
    if (started) {
      EXPECT_TRUE(source->start(0, Time{}));
    }
  }
  ReceiveOptions completed(ReceiveOptions options) {
    if (options.source == 0) options.source = 5;
    if (!options.port) options.port = new_port();
    options.log = [this](LogLevel, std::string_view text) { log.emplace_back(text); };
    return options;
  }
  // Reads, waiting on the descriptor as the loop does, until `done` is true.
  template <class Done>
  void read_until(Done done) {
    while (!done()) {
      last = source->read(fixture.queue, now);
      if (done() || last.state == ReadState::more) continue;
      pollfd waiting{source->descriptor(), POLLIN, 0};
      ASSERT_EQ(::poll(&waiting, 1, 10000), 1) << "the descriptor did not become readable";
    }
  }
  void announce(EventNumber end) {
    source->announced(end);
    last = source->read(fixture.queue, now);
  }
  [[nodiscard]] std::uint64_t counter(std::string_view name) const {
    for (const auto& counter : source->counters()) {
      if (counter.name == name) return counter.value;
    }
    ADD_FAILURE() << "no counter " << name;
    return 0;
  }

  QueueFixture fixture;
  std::unique_ptr<ReceiveSource> source;
  ReadResult last;
  Time now{};
  std::vector<std::string> log;
};

// A whole connection of a sender that has one for each spill: events [first, end), and closed.
inline void send_spill(const ReceiveSource& source, EventNumber first, EventNumber end,
                       std::size_t size = 10) {
  const SenderSocket peer(source);
  SenderBytes sender(5);
  sender.preface();
  for (EventNumber event = first; event < end; ++event) {
    sender.fragment(event, bytes_of(size, event));
  }
  peer.send(sender.bytes());
}

} // namespace fanin::source::testing
