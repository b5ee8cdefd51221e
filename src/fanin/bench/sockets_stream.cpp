// fanin's high-throughput sockets, one message after the other.

#include "fanin/base/try.hpp"
#include "fanin/bench/sockets_process.hpp"

namespace fanin::bench {
namespace {

class StreamSenderRole final : public Role {
public:
  static MadeRole make(message::Context& context, const Spec& spec, const net::Url& url) {
    std::unique_ptr<StreamSenderRole> role{new StreamSenderRole{context, spec}};
    StreamSenderRole& self = *role;
    self.socket_ = FANIN_TRY(message::HighThroughputSender::connect(
        context, url,
        {.send_queue_bytes = stream_queue_bytes(spec),
         .on_connected = [&self] { self.feeder_.open(); },
         .on_disconnected = [&context](auto) { context.stop(); },
         .on_writable = [&self] { self.feeder_.open(); }}));
    return role;
  }

  net::SendOutcome offer() { return socket_->send(source_.bytes()); }

private:
  StreamSenderRole(message::Context& context, const Spec& spec)
      : source_(spec.size), feeder_(context, spec.size, *this) {}

  PayloadSource source_;
  Feeder<StreamSenderRole> feeder_;
  std::unique_ptr<message::HighThroughputSender> socket_;
};

} // namespace

Roles stream_roles(const Spec& spec) {
  Roles roles;
  roles.message = spec.size;
  roles.listen = [spec](message::Context& context, std::size_t, net::Url& url,
                        ProcessStats& stats) {
    const auto look = [read = spec.read](message::Message& one) { return touched(one, read); };
    return ReceiverRole<decltype(look)>::make(context, url, stats, look);
  };
  roles.connect = [spec](message::Context& context, std::size_t, const std::vector<net::Url>& urls,
                         ProcessStats&) {
    return StreamSenderRole::make(context, spec, urls.front());
  };
  return roles;
}

} // namespace fanin::bench
