#include "fanin/message/high_throughput_receiver.hpp"
#include "fanin/base/try.hpp"

#include "fanin/message/acceptor.hpp"

namespace fanin::message {
namespace detail {

class HighThroughputReceiverSocket final : public HighThroughputReceiver, AcceptorOwner {
public:
  HighThroughputReceiverSocket(Context& context, HighThroughputReceiverOptions options);

private:
  struct Sender; // a peer
  std::shared_ptr<Peer> admit(const Hello& hello) override;
  void on_admitted(const std::shared_ptr<Peer>& peer) override;
  void on_message(const std::shared_ptr<Peer>& peer, net::Event& event) override;
  void on_writable(Peer&) override {}
  void on_closed(const std::shared_ptr<Peer>& peer, CloseReason reason) override;
  void cut_off(PeerId id, CloseReason reason);

  HighThroughputReceiverOptions options_;
};

struct HighThroughputReceiverSocket::Sender final : Peer {
  std::shared_ptr<PageSource> source = std::make_shared<PageSource>();
};

HighThroughputReceiverSocket::HighThroughputReceiverSocket(Context& context,
                                                           HighThroughputReceiverOptions options)
    : HighThroughputReceiver(
          context,
          {.message_max = options.message_max,
           .unfinished_max = options.unfinished_max,
           .on_ready = std::move(options.on_ready)},
          [this](PageSource& source, CloseReason reason) { cut_off(source.id, reason); }),
      options_(std::move(options)) {
  acceptor_ = std::make_unique<Acceptor>(
      context, static_cast<AcceptorOwner&>(*this), counters_,
      Acceptor::Options{.message_max = std::min(options_.message_max, Message::size_max)});
}

std::shared_ptr<Peer> HighThroughputReceiverSocket::admit(const Hello& hello) {
  return hello.kind == SocketKind::high_throughput ? std::make_shared<Sender>() : nullptr;
}

void HighThroughputReceiverSocket::on_admitted(const std::shared_ptr<Peer>& peer) {
  PageSource& source = *static_cast<Sender&>(*peer).source;
  source.id = peer->id;
  source.lent_max = peer->hello.lent_max;
  if (options_.on_connected) options_.on_connected(peer->id);
}

void HighThroughputReceiverSocket::on_message(const std::shared_ptr<Peer>& peer,
                                              net::Event& event) {
  queue_.push(static_cast<Sender&>(*peer).source, std::move(event.message), std::move(event.rest));
}

void HighThroughputReceiverSocket::on_closed(const std::shared_ptr<Peer>& peer,
                                             CloseReason reason) {
  queue_.end(static_cast<Sender&>(*peer).source);
  if (options_.on_disconnected) options_.on_disconnected(peer->id, reason);
}

void HighThroughputReceiverSocket::cut_off(PeerId id, CloseReason reason) {
  const auto peer = acceptor_->find(id);
  if (peer == nullptr) { // it has left already
    ++counters_.closed[static_cast<std::size_t>(reason)];
    return;
  }
  acceptor_->close(*peer, reason);
  if (options_.on_disconnected) options_.on_disconnected(id, reason);
}

} // namespace detail

Result<std::unique_ptr<HighThroughputReceiver>>
HighThroughputReceiver::listen(Context& context, const net::Url& url,
                               HighThroughputReceiverOptions options) {
  auto receiver =
      std::make_unique<detail::HighThroughputReceiverSocket>(context, std::move(options));
  receiver->url_ = FANIN_TRY(receiver->also_listen(url));
  return receiver;
}

bool HighThroughputReceiver::recv(std::vector<std::byte>& message) {
  if (!recv(copied_)) return false;
  message.clear();
  for (std::size_t i = 0; i < copied_.pieces(); ++i) {
    const auto bytes = copied_.piece(i).bytes();
    message.insert(message.end(), bytes.begin(), bytes.end());
  }
  return true;
}

} // namespace fanin::message
