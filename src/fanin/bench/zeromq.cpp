#include "fanin/bench/contender_ends.hpp"

#if FANIN_HAVE_ZMQ

#include <dlfcn.h>
#include <unistd.h>
#include <zmq.h>

#include <array>
#include <cerrno>
#include <type_traits>

#include <fmt/format.h>

#include "fanin/base/try.hpp"
#include "fanin/bench/payload.hpp"
#include "fanin/bench/roundtrip.hpp"

namespace fanin::bench {
namespace {

constexpr const char* library = "libzmq.so.5";

// The functions of libzmq that are used here.
struct Zmq {
  decltype(&zmq_ctx_new) ctx_new;
  decltype(&zmq_socket) socket;
  decltype(&zmq_setsockopt) setsockopt;
  decltype(&zmq_getsockopt) getsockopt;
  decltype(&zmq_bind) bind;
  decltype(&zmq_connect) connect;
  decltype(&zmq_send) send;
  decltype(&zmq_poll) poll;
  decltype(&zmq_msg_init) msg_init;
  decltype(&zmq_msg_recv) msg_recv;
  decltype(&zmq_msg_data) msg_data;
  decltype(&zmq_msg_size) msg_size;
  decltype(&zmq_msg_close) msg_close;
  decltype(&zmq_errno) last_errno;
  decltype(&zmq_strerror) strerror;

  static Result<Zmq> load() {
    void* const handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr) return fail(ErrorKind::unsupported, dlerror());
    Zmq zmq{};
    bool all = true;
    const auto get = [&](auto& function, const char* name) {
      void* const symbol = dlsym(handle, name);
      all = all && symbol != nullptr;
      function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(symbol);
    };
    get(zmq.ctx_new, "zmq_ctx_new");
    get(zmq.socket, "zmq_socket");
    get(zmq.setsockopt, "zmq_setsockopt");
    get(zmq.getsockopt, "zmq_getsockopt");
    get(zmq.bind, "zmq_bind");
    get(zmq.connect, "zmq_connect");
    get(zmq.send, "zmq_send");
    get(zmq.poll, "zmq_poll");
    get(zmq.msg_init, "zmq_msg_init");
    get(zmq.msg_recv, "zmq_msg_recv");
    get(zmq.msg_data, "zmq_msg_data");
    get(zmq.msg_size, "zmq_msg_size");
    get(zmq.msg_close, "zmq_msg_close");
    get(zmq.last_errno, "zmq_errno");
    get(zmq.strerror, "zmq_strerror");
    if (!all) return fail(ErrorKind::unsupported, fmt::format("{} lacks a function", library));
    return zmq;
  }
};

// One socket with a context of its own; ends with its process.
class Socket {
public:
  static Result<Socket> make(int type) {
    auto zmq = FANIN_TRY(Zmq::load());
    Socket socket{zmq};
    socket.socket_ = zmq.socket(zmq.ctx_new(), type);
    if (socket.socket_ == nullptr) return std::unexpected(socket.error("zmq_socket"));
    if (type != ZMQ_PAIR) return socket;
    // What is under way is limited by the pipeline: with the usual limit of 1000 messages both ends
    // of a longer one would wait for each other.
    for (const int limit : {ZMQ_SNDHWM, ZMQ_RCVHWM}) FANIN_TRY(socket.set(limit, 0));
    return socket;
  }

  Result<> set(int option, int value) {
    return check(zmq_.setsockopt(socket_, option, &value, sizeof value), "zmq_setsockopt");
  }
  Result<> subscribe_to_all() {
    return check(zmq_.setsockopt(socket_, ZMQ_SUBSCRIBE, "", 0), "zmq_setsockopt");
  }
  // Says the address in the stats.
  Result<> listen(const net::Url& url, ProcessStats& stats) {
    const bool tcp = url.scheme == "tcp";
    const std::string host = url.host.empty() ? "127.0.0.1" : url.host;
    const std::string where =
        tcp ? fmt::format("tcp://{}:*", host) : fmt::format("ipc://@fanin-bench-{}", getpid());
    FANIN_TRY(check(zmq_.bind(socket_, where.c_str()), "zmq_bind " + where));
    std::array<char, 256> address{};
    std::size_t size = address.size();
    (void)zmq_.getsockopt(socket_, ZMQ_LAST_ENDPOINT, address.data(), &size);
    stats.listens_at(address.data());
    return {};
  }
  Result<> connect(const std::string& address) {
    return check(zmq_.connect(socket_, address.c_str()), "zmq_connect " + address);
  }
  Result<> send(std::span<const std::byte> message) {
    return check(zmq_.send(socket_, message.data(), message.size(), 0), "zmq_send");
  }
  // Its size; -1: none is there, or a signal came.
  Result<std::int64_t> receive(bool every_byte, int flags) {
    zmq_msg_t message;
    (void)zmq_.msg_init(&message);
    const int size = zmq_.msg_recv(&message, socket_, flags);
    if (size < 0 && (zmq_.last_errno() == EAGAIN || zmq_.last_errno() == EINTR)) return -1;
    if (size < 0) return std::unexpected(error("zmq_msg_recv"));
    touch({static_cast<std::byte*>(zmq_.msg_data(&message)), zmq_.msg_size(&message)}, every_byte);
    (void)zmq_.msg_close(&message);
    return size;
  }
  bool wait(long timeout_ms) { // false: nothing came
    zmq_pollitem_t item{socket_, 0, ZMQ_POLLIN, 0};
    return zmq_.poll(&item, 1, timeout_ms) > 0;
  }

private:
  explicit Socket(const Zmq& zmq) : zmq_(zmq) {}
  [[nodiscard]] Error error(const std::string& what) const {
    return {ErrorKind::internal, what + ": " + zmq_.strerror(zmq_.last_errno())};
  }
  Result<> check(int result, const std::string& what) const {
    if (result < 0) return std::unexpected(error(what));
    return {};
  }

  Zmq zmq_;
  void* socket_ = nullptr;
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

Result<> send_messages(Socket& socket, const Spec& spec, ProcessStats& stats) {
  const PayloadSource source(spec.size);
  stats.state = ProcessStats::State::ready;
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

Ends stream(const Spec& spec) {
  Ends ends;
  ends.listen = [spec](std::size_t, ProcessStats& stats) -> Result<> {
    auto socket = FANIN_TRY(listening(ZMQ_PULL, spec, stats));
    return count_messages(socket, spec.read, stats);
  };
  ends.connect = [spec](std::size_t, const std::vector<std::string>& addresses,
                        ProcessStats& stats) -> Result<> {
    auto socket = FANIN_TRY(connected(ZMQ_PUSH, addresses.front()));
    return send_messages(socket, spec, stats);
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
  Ends ends;
  ends.connectors = spec.receivers;
  ends.connectors_count = true;
  ends.listen = [spec](std::size_t, ProcessStats& stats) -> Result<> {
    auto socket = FANIN_TRY(listening(ZMQ_PUB, spec, stats));
    return send_messages(socket, spec, stats);
  };
  ends.connect = [spec](std::size_t, const std::vector<std::string>& addresses,
                        ProcessStats& stats) -> Result<> {
    auto socket = FANIN_TRY(connected(ZMQ_SUB, addresses.front()));
    stats.state = ProcessStats::State::ready;
    return count_messages(socket, spec.read, stats);
  };
  return ends;
}

} // namespace

Result<Ends> zeromq_ends(const Spec& spec) {
  switch (spec.pattern) {
  case Pattern::stream: return stream(spec);
  case Pattern::roundtrip: return roundtrip(spec);
  case Pattern::pubsub: return pubsub(spec);
  case Pattern::nxn: break;
  }
  return fail(ErrorKind::unsupported, "zeromq: not measured in this pattern");
}

} // namespace fanin::bench

#else

namespace fanin::bench {

Result<Ends> zeromq_ends(const Spec&) {
  return fail(ErrorKind::unsupported, "zeromq: install libzmq3-dev and build again");
}

} // namespace fanin::bench

#endif
