// The connecting side of a socket: one connection, made again with back-off whenever it ends.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "fanin/message/context.hpp"
#include "fanin/message/handshake.hpp"

namespace fanin::message {

// After a connection could not be made or has ended: the first attempt follows after `initial`, and
// each that fails, or lasts less than `max`, doubles the time, up to `max`. Half of it is chosen at
// random, so that many who lost the same peer do not come back at once.
struct ReconnectPolicy {
  Duration initial = std::chrono::milliseconds{10};
  Duration max = std::chrono::seconds{2};
};

namespace detail {

class ConnectorOwner {
public:
  virtual ~ConnectorOwner() = default;
  virtual void on_open(const Hello& peer) = 0; // the handshake is done: send
  virtual void on_message(net::Event& event) = 0;
  virtual void on_writable() = 0;
  virtual void on_closed(CloseReason reason) = 0; // it was open, or could not be made
};

class Connector final : net::Handler {
public:
  struct Options {
    ReconnectPolicy reconnect;
    // In the transport, and also held by the peer where memory is shared.
    std::uint64_t send_queue_bytes = ContextOptions::send_queue;
    bool low_latency = false;
    std::uint64_t message_max = 0; // said to the peer
  };
  Connector(Context& context, ConnectorOwner& owner, SocketKind kind, const Options& options);
  ~Connector() override;
  Connector(const Connector&) = delete;
  Connector& operator=(const Connector&) = delete;

  // Errors: those of Transport::connect() that no other attempt would mend.
  [[nodiscard]] Result<> connect(const net::Url& url);
  // For good: no attempt and no on_closed() follows. What was accepted is still delivered.
  void close();
  // Closes this connection for a reason and makes another one.
  void fail(CloseReason reason);

  [[nodiscard]] bool open() const { return open_; }
  [[nodiscard]] const net::Link& link() const { return link_; }
  [[nodiscard]] const net::Url& url() const { return url_; }

private:
  void on_event(net::Transport& transport, net::Event& event) override;
  void say_hello();
  void read_answer(const memory::View& message);
  void ended(CloseReason reason);
  [[nodiscard]] Result<> make_connection();
  void attempt();

  Context& context_;
  ConnectorOwner& owner_;
  SocketKind kind_;
  Options options_;
  net::Url url_;
  net::Transport* transport_ = nullptr;
  net::Link link_;
  bool hello_owed_ = false; // the transport said backpressure
  bool open_ = false;
  bool said_ = false; // to people, why there is no connection; once until there is one
  Duration wait_{};
  Time opened_at_{};
  net::Timer retry_;
  net::Timer deadline_; // of the answer
};

} // namespace detail
} // namespace fanin::message
