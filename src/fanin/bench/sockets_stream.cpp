// fanin's high-throughput sockets, one message after the other.
#include <utility>

#include "fanin/bench/sockets_process.hpp"

namespace fanin::bench {
namespace {

class StreamReceiverRole final : public Role {
public:
  static MadeRole make(message::Context& context, const Spec& spec, net::Url& url,
                       ProcessStats& stats) {
    std::unique_ptr<StreamReceiverRole> role{new StreamReceiverRole};
    StreamReceiverRole& self = *role;
    auto socket = message::HighThroughputReceiver::listen(
        context, url,
        {.message_max = bench::message_size_max,
         .on_ready = [&self, &stats,
                      read = spec.read] { take_all(*self.socket_, self.message_, read, stats); },
         .on_connected = {},
         .on_disconnected = [&context](auto, auto) { context.stop(); }});
    if (!socket) return std::unexpected(socket.error());
    self.socket_ = std::move(*socket);
    url = self.socket_->url();
    return role;
  }

private:
  message::Message message_;
  std::unique_ptr<message::HighThroughputReceiver> socket_;
};

class StreamSenderRole final : public Role {
public:
  static MadeRole make(message::Context& context, const Spec& spec, const net::Url& url) {
    std::unique_ptr<StreamSenderRole> role{new StreamSenderRole{context, spec}};
    StreamSenderRole& self = *role;
    auto socket = message::HighThroughputSender::connect(
        context, url,
        {.send_queue_bytes = stream_queue_bytes(spec),
         .on_connected = [&self] { self.feeder_.open(); },
         .on_disconnected = [&context](auto) { context.stop(); },
         .on_writable = [&self] { self.feeder_.open(); }});
    if (!socket) return std::unexpected(socket.error());
    self.socket_ = std::move(*socket);
    return role;
  }

private:
  struct Offer {
    StreamSenderRole& sender;
    net::SendOutcome operator()() const { return sender.socket_->send(sender.source_.bytes()); }
  };
  StreamSenderRole(message::Context& context, const Spec& spec)
      : source_(spec.size), feeder_(context, spec.size, Offer{*this}) {}

  PayloadSource source_;
  Feeder<Offer> feeder_;
  std::unique_ptr<message::HighThroughputSender> socket_;
};

} // namespace

Roles stream_roles(const Spec& spec) {
  Roles roles;
  roles.message = spec.size;
  roles.listen = [spec](message::Context& context, std::size_t, net::Url& url,
                        ProcessStats& stats) {
    return StreamReceiverRole::make(context, spec, url, stats);
  };
  roles.connect = [spec](message::Context& context, std::size_t, const std::vector<net::Url>& urls,
                         ProcessStats&) {
    return StreamSenderRole::make(context, spec, urls.front());
  };
  return roles;
}

} // namespace fanin::bench
