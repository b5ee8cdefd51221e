/// \file
/// The connecting side of a socket: one connection. When it has ended, it is made again after some
/// time.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "fanin/message/context.hpp"
#include "fanin/message/handshake.hpp"

namespace fanin::message::detail {

class ConnectorOwner {
public:
  virtual ~ConnectorOwner() = default;
  virtual void on_open(const Hello& peer) = 0; // the handshake is complete: messages can be sent
  virtual void on_message(net::Event& event) = 0;
  virtual void on_writable() = 0;
  virtual void on_closed(CloseReason reason) = 0; // the connection was open, or could not be made
};

class Connector final : net::Handler {
public:
  struct Options {
    ReconnectPolicy reconnect;
    // Most bytes that the transport holds; where memory is shared, also most that the peer holds.
    std::uint64_t send_queue_bytes = ContextOptions::send_queue;
    bool low_latency = false;
    std::uint64_t message_max = 0; // bytes; the peer learns it from the hello
  };
  Connector(Context& context, ConnectorOwner& owner, SocketKind kind, const Options& options);
  ~Connector() override;
  Connector(const Connector&) = delete;
  Connector& operator=(const Connector&) = delete;

  // Begins to connect. Errors: those of Transport::connect() that another attempt would not change.
  [[nodiscard]] Result<> connect(const net::Url& url);
  // Closes finally: no attempt and no on_closed() follows. Accepted messages are still delivered.
  void close();
  // Closes this connection for the given reason, and makes another one.
  void fail(CloseReason reason);

  [[nodiscard]] bool open() const { return open_; }
  // Why there is no connection, as the log says it; empty: there is one, or none was tried yet.
  [[nodiscard]] const std::string& trouble() const { return said_; }
  [[nodiscard]] const net::Link& link() const { return link_; }
  [[nodiscard]] const net::Url& url() const { return url_; }

private:
  void on_event(net::Transport& transport, net::Event& event) override;
  void send_hello();
  void read_answer(const memory::View& message);
  void ended(CloseReason reason, std::string_view why = {});
  void say(std::string text);
  [[nodiscard]] Result<> make_connection();
  void attempt();

  Context& context_;
  ConnectorOwner& owner_;
  SocketKind kind_;
  Options options_;
  net::Url url_;
  net::Transport* transport_ = nullptr;
  net::Link link_;
  bool hello_pending_ = false; // the transport said backpressure
  bool open_ = false;
  std::string said_; // why there is no connection, as it was logged last; empty: it was not
  Duration retry_after_{};
  Time opened_at_{};
  net::Timer retry_;
  net::Timer deadline_; // of the answer
};

} // namespace fanin::message::detail
