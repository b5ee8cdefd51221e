#include <unistd.h>
#include <zmq.h>

#include <array>
#include <cerrno>

#include <fmt/format.h>

#include "fanin/base/try.hpp"
#include "fanin/bench/payload.hpp"
#include "fanin/bench/peer_modules.hpp"
#include "fanin/bench/roundtrip.hpp"

namespace fanin::bench {
namespace {

// One socket with a context of its own; ends with its process.
class Socket {
public:
  static Result<Socket> make(int type) {
    Socket socket{zmq_socket(zmq_ctx_new(), type)};
    if (socket.socket_ == nullptr) return std::unexpected(error("zmq_socket"));
    if (type != ZMQ_PAIR) return socket;
    // What is under way is limited by the pipeline: with the usual limit of 1000 messages both ends
    // of a longer one would wait for each other.
    for (const int limit : {ZMQ_SNDHWM, ZMQ_RCVHWM}) FANIN_TRY(socket.set(limit, 0));
    return socket;
  }

  Result<> set(int option, int value) {
    return check(zmq_setsockopt(socket_, option, &value, sizeof value), "zmq_setsockopt");
  }
  Result<> subscribe_to_all() {
    return check(zmq_setsockopt(socket_, ZMQ_SUBSCRIBE, "", 0), "zmq_setsockopt");
  }
  // Says the address in the stats.
  Result<> listen(const net::Url& url, ProcessStats& stats) {
    const bool tcp = url.scheme == "tcp";
    const std::string host = url.host.empty() ? "127.0.0.1" : url.host;
    const std::string where =
        tcp ? fmt::format("tcp://{}:*", host) : fmt::format("ipc://@fanin-bench-{}", getpid());
    FANIN_TRY(check(zmq_bind(socket_, where.c_str()), "zmq_bind " + where));
    std::array<char, 256> address{};
    std::size_t size = address.size();
    (void)zmq_getsockopt(socket_, ZMQ_LAST_ENDPOINT, address.data(), &size);
    stats.listens_at(address.data());
    return {};
  }
  Result<> connect(const std::string& address) {
    return check(zmq_connect(socket_, address.c_str()), "zmq_connect " + address);
  }
  Result<> send(std::span<const std::byte> message) {
    return check(zmq_send(socket_, message.data(), message.size(), 0), "zmq_send");
  }
  // Its size; -1: none is there, or a signal came.
  Result<std::int64_t> receive(bool every_byte, int flags) {
    zmq_msg_t message;
    (void)zmq_msg_init(&message);
    const int size = zmq_msg_recv(&message, socket_, flags);
    if (size < 0 && (zmq_errno() == EAGAIN || zmq_errno() == EINTR)) return -1;
    if (size < 0) return std::unexpected(error("zmq_msg_recv"));
    touch({static_cast<std::byte*>(zmq_msg_data(&message)), zmq_msg_size(&message)}, every_byte);
    (void)zmq_msg_close(&message);
    return size;
  }
  bool wait(long timeout_ms) { // false: nothing came
    zmq_pollitem_t item{socket_, 0, ZMQ_POLLIN, 0};
    return zmq_poll(&item, 1, timeout_ms) > 0;
  }

private:
  explicit Socket(void* socket) : socket_(socket) {}
  static Error error(const std::string& what) {
    return {ErrorKind::internal, what + ": " + zmq_strerror(zmq_errno())};
  }
  static Result<> check(int result, const std::string& what) {
    if (result < 0) return std::unexpected(error(what));
    return {};
  }

  void* socket_;
};

// Its own threads do the work and need the cores: waiting is left to them.
class ZmqPipe final : public Pipe {
public:
  explicit ZmqPipe(Socket socket) : socket_(socket) {}
  Result<> send(std::span<const std::byte> message) override { return socket_.send(message); }
  Result<bool> receive(Time until) override {
    if (until != never) {
      const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(until - clock_.now());
      if (left.count() > 0 && !socket_.wait(left.count())) return false;
    }
    const auto size = FANIN_TRY(socket_.receive(false, until == never ? 0 : ZMQ_DONTWAIT));
    return size >= 0;
  }

private:
  MonotonicClock clock_;
  Socket socket_;
};

Result<> count_messages(Socket& socket, bool read, ProcessStats& stats) {
  while (true) {
    const auto size = FANIN_TRY(socket.receive(read, 0));
    if (size < 0) continue;
    stats.messages.add(1);
    stats.bytes.add(static_cast<std::uint64_t>(size));
  }
}

Result<> send_messages(Socket& socket, const Spec& spec) {
  const PayloadSource source(spec.size);
  while (true) FANIN_TRY(socket.send(source.bytes()));
}

Result<Socket> listening(int type, const Spec& spec, ProcessStats& stats) {
  auto socket = FANIN_TRY(Socket::make(type));
  // A publisher that drops what its subscribers do not take would send more than arrives.
  if (type == ZMQ_PUB) (void)socket.set(ZMQ_XPUB_NODROP, 1);
  FANIN_TRY(socket.listen(spec.url, stats));
  return socket;
}

Result<Socket> connected(int type, const std::string& address) {
  auto socket = FANIN_TRY(Socket::make(type));
  if (type == ZMQ_SUB) FANIN_TRY(socket.subscribe_to_all());
  FANIN_TRY(socket.connect(address));
  return socket;
}

// By the types of the sockets, one of which sends and the other one receives.
Ends one_way(const Spec& spec, int listens, int connects) {
  const auto run = [spec](Socket& socket, int type, ProcessStats& stats) -> Result<> {
    stats.state = ProcessStats::State::ready;
    if (type == ZMQ_PUSH || type == ZMQ_PUB) return send_messages(socket, spec);
    return count_messages(socket, spec.read, stats);
  };
  Ends ends;
  ends.listen = [=](std::size_t, ProcessStats& stats) -> Result<> {
    auto socket = FANIN_TRY(listening(listens, spec, stats));
    return run(socket, listens, stats);
  };
  ends.connect = [=](std::size_t, const std::vector<std::string>& addresses,
                     ProcessStats& stats) -> Result<> {
    auto socket = FANIN_TRY(connected(connects, addresses.front()));
    return run(socket, connects, stats);
  };
  return ends;
}

Ends roundtrip(const Spec& spec) {
  Ends ends;
  ends.latency = ends.connectors_count = true;
  ends.listen = [spec](std::size_t, ProcessStats& stats) -> Result<> {
    auto socket = FANIN_TRY(listening(ZMQ_PAIR, spec, stats));
    ZmqPipe pipe{socket};
    return send_back(pipe, spec);
  };
  ends.connect = [spec](std::size_t, const std::vector<std::string>& addresses,
                        ProcessStats& stats) -> Result<> {
    auto socket = FANIN_TRY(connected(ZMQ_PAIR, addresses.front()));
    ZmqPipe pipe{socket};
    return make_trips(pipe, spec, stats);
  };
  return ends;
}

Ends pubsub(const Spec& spec) {
  Ends ends = one_way(spec, ZMQ_PUB, ZMQ_SUB);
  ends.connectors = spec.receivers;
  ends.connectors_count = true;
  return ends;
}

} // namespace
} // namespace fanin::bench

extern "C" void fanin_zeromq(const fanin::bench::Spec& spec,
                             fanin::Result<fanin::bench::Ends>& ends) {
  using namespace fanin::bench;
  switch (spec.pattern) {
  case Pattern::stream: ends = one_way(spec, ZMQ_PULL, ZMQ_PUSH); break;
  case Pattern::roundtrip: ends = roundtrip(spec); break;
  default: ends = pubsub(spec);
  }
}
