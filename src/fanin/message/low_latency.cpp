#include "fanin/message/low_latency.hpp"

#include "fanin/base/try.hpp"
#include "fanin/memory/heap_page.hpp"
#include "fanin/message/acceptor.hpp"
#include "fanin/message/connector.hpp"
#include "fanin/net/page_filler.hpp"

namespace fanin::message {
namespace detail {

// --- sending ---

class LowLatencySenderSocket final : public LowLatencySender, ConnectorOwner, TurnEndTask {
public:
  LowLatencySenderSocket(Context& context, LowLatencySenderOptions options);
  ~LowLatencySenderSocket() override { context_.forget(*this); }
  [[nodiscard]] Result<> connect(const net::Url& url) { return connector_.connect(url); }

  using LowLatencySender::send;
  net::SendOutcome send(std::span<const memory::View> message) override;
  net::SendOutcome send(std::span<const std::byte> message) override;
  void close() override { connector_.close(); }
  bool connected() const override { return connector_.open(); }
  std::string trouble() const override { return connector_.trouble(); }
  std::uint64_t message_max() const override { return message_max_; }

private:
  void on_open(const Hello& peer) override;
  void on_message(net::Event& event) override;
  void on_writable() override;
  void on_closed(CloseReason reason) override;
  Answer at_turn_end() override;

  Context& context_;
  LowLatencySenderOptions options_;
  net::PageFiller filler_;
  Message answer_; // the one in the callback
  std::uint64_t message_max_ = 0;
  bool wants_page_ = false; // backpressure because the send pool was empty
  Connector connector_;
};

LowLatencySenderSocket::LowLatencySenderSocket(Context& context, LowLatencySenderOptions options)
    : context_(context),
      options_(std::move(options)),
      filler_(context.send_pool()),
      connector_(context, *this, SocketKind::low_latency,
                 {.reconnect = options_.reconnect,
                  .send_queue_bytes = options_.send_queue_bytes,
                  .low_latency = true,
                  .message_max = options_.on_answer ? context.receive_pool().page_size() / 2 : 0}) {
}

net::SendOutcome LowLatencySenderSocket::send(std::span<const memory::View> message) {
  if (!connector_.open()) return net::SendOutcome::closed;
  const net::SendOutcome outcome = connector_.link().send(message);
  if (outcome != net::SendOutcome::accepted) return outcome;
  ++counters_.messages;
  ++counters_.pages;
  for (const memory::View& extent : message) counters_.bytes += extent.size;
  return outcome;
}

net::SendOutcome LowLatencySenderSocket::send(std::span<const std::byte> message) {
  if (!connector_.open()) return net::SendOutcome::closed;
  if (message.size() > filler_.pool().page_size()) return net::SendOutcome::too_large;
  const memory::View view = filler_.copy(message);
  if (!view.page) {
    wants_page_ = true;
    context_.at_turn_end(*this);
    return net::SendOutcome::backpressure;
  }
  return send({&view, 1});
}

void LowLatencySenderSocket::on_open(const Hello& peer) {
  ++counters_.connections;
  message_max_ = peer.page_max;
  if (options_.on_connected) options_.on_connected();
}

void LowLatencySenderSocket::on_message(net::Event& event) {
  if (!options_.on_answer) return connector_.fail(CloseReason::bad_page);
  ++counters_.answers;
  answer_.receive(PeerId::none, std::move(event.message), std::move(event.rest));
  if (!answer_.hand_to(options_.on_answer)) connector_.fail(CloseReason::callback_threw);
}

void LowLatencySenderSocket::on_writable() {
  if (options_.on_writable) options_.on_writable();
}

TurnEndTask::Answer LowLatencySenderSocket::at_turn_end() {
  if (wants_page_ && context_.send_pool().available() > 0) {
    wants_page_ = false;
    on_writable();
  }
  return {.stay = wants_page_};
}

void LowLatencySenderSocket::on_closed(CloseReason reason) {
  ++counters_.closed[static_cast<std::size_t>(reason)];
  if (options_.on_disconnected) options_.on_disconnected(reason);
}

// --- receiving ---

class LowLatencyReceiverSocket final : public LowLatencyReceiver, AcceptorOwner {
public:
  LowLatencyReceiverSocket(Context& context, LowLatencyReceiverOptions options);

  net::SendOutcome answer(PeerId peer, const memory::View& message) override;
  net::SendOutcome answer(PeerId peer, std::span<const std::byte> message) override;

private:
  std::shared_ptr<Peer> admit(const Hello& hello) override;
  void on_admitted(const std::shared_ptr<Peer>& peer) override;
  void on_message(const std::shared_ptr<Peer>& peer, net::Event& event) override;
  void on_writable(Peer& peer) override;
  void on_closed(const std::shared_ptr<Peer>& peer, CloseReason reason) override;

  LowLatencyReceiverOptions options_;
  Message message_; // the one in the callback
  net::PageFiller filler_; // of answers
};

LowLatencyReceiverSocket::LowLatencyReceiverSocket(Context& context,
                                                   LowLatencyReceiverOptions options)
    : options_(std::move(options)), filler_(context.send_pool()) {
  acceptor_ = std::make_unique<Acceptor>(
      context, static_cast<AcceptorOwner&>(*this), counters_,
      Acceptor::Options{.message_max = context.receive_pool().page_size() / 2,
                        .low_latency = true});
}

net::SendOutcome LowLatencyReceiverSocket::answer(PeerId id, const memory::View& message) {
  const std::shared_ptr<Peer> peer = acceptor_->find(id);
  if (peer == nullptr) return net::SendOutcome::closed;
  if (message.size > peer->hello.message_max) return net::SendOutcome::too_large;
  if (peer->answer_owed) return net::SendOutcome::backpressure; // to its hello
  const net::SendOutcome outcome = peer->link.send({&message, 1});
  counters_.answers += outcome == net::SendOutcome::accepted ? 1 : 0;
  return outcome;
}

net::SendOutcome LowLatencyReceiverSocket::answer(PeerId id, std::span<const std::byte> message) {
  if (message.size() > filler_.pool().page_size()) return net::SendOutcome::too_large;
  const memory::View view = filler_.copy(message);
  return answer(id, view.page ? view : memory::HeapPage::copy(message));
}

std::shared_ptr<Peer> LowLatencyReceiverSocket::admit(const Hello& hello) {
  return hello.kind == SocketKind::low_latency ? std::make_shared<Peer>() : nullptr;
}

void LowLatencyReceiverSocket::on_admitted(const std::shared_ptr<Peer>& peer) {
  if (options_.on_connected) options_.on_connected(peer->id);
}

void LowLatencyReceiverSocket::on_message(const std::shared_ptr<Peer>& peer, net::Event& event) {
  ++counters_.messages;
  ++counters_.pages;
  counters_.bytes += event.message.size + event.rest.size;
  message_.receive(peer->id, std::move(event.message), std::move(event.rest));
  const bool good = message_.hand_to(options_.on_message);
  if (good || !peer->link) return; // it may have closed the receiver
  acceptor_->close(*peer, CloseReason::callback_threw);
  on_closed(peer, CloseReason::callback_threw);
}

void LowLatencyReceiverSocket::on_writable(Peer& peer) {
  if (options_.on_writable) options_.on_writable(peer.id);
}

void LowLatencyReceiverSocket::on_closed(const std::shared_ptr<Peer>& peer, CloseReason reason) {
  if (options_.on_disconnected) options_.on_disconnected(peer->id, reason);
}

} // namespace detail

Result<std::unique_ptr<LowLatencySender>>
LowLatencySender::connect(Context& context, const net::Url& url, LowLatencySenderOptions options) {
  auto sender = std::make_unique<detail::LowLatencySenderSocket>(context, std::move(options));
  FANIN_TRY(sender->connect(url));
  return sender;
}

Result<std::unique_ptr<LowLatencyReceiver>>
LowLatencyReceiver::listen(Context& context, const net::Url& url,
                           LowLatencyReceiverOptions options) {
  if (!options.on_message)
    return fail(ErrorKind::usage, "on_message is not set, so nobody would receive the messages");
  auto receiver = std::make_unique<detail::LowLatencyReceiverSocket>(context, std::move(options));
  receiver->url_ = FANIN_TRY(receiver->also_listen(url));
  return receiver;
}

} // namespace fanin::message
