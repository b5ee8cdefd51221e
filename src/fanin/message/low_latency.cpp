#include "fanin/message/low_latency.hpp"

#include <array>

#include "fanin/base/try.hpp"
#include "fanin/memory/copy.hpp"
#include "fanin/memory/heap_page.hpp"

namespace fanin::message {
namespace {

// A copy in a page that others share; none if the pool is empty.
memory::View packed(net::PageFiller& filler, std::span<const std::byte> message) {
  const auto size = static_cast<std::uint32_t>(message.size());
  auto [page, offset] = filler.reserve(size);
  if (!page) return {};
  memory::copy(page.data() + offset, message);
  memory::View view = page.freeze(offset, size);
  filler.give_back(std::move(page), offset + size);
  return view;
}

} // namespace

// --- sending ---

LowLatencySender::LowLatencySender(Context& context, LowLatencySenderOptions options)
    : context_(context),
      options_(std::move(options)),
      filler_(context.send_pool()),
      connector_(context, *this, SocketKind::low_latency,
                 {.reconnect = options_.reconnect,
                  .send_queue_bytes = options_.send_queue_bytes,
                  .low_latency = true,
                  .message_max = options_.on_answer ? context.receive_pool().page_size() / 2 : 0}) {
}

LowLatencySender::~LowLatencySender() { context_.forget(*this); }

Result<std::unique_ptr<LowLatencySender>>
LowLatencySender::connect(Context& context, const net::Url& url, LowLatencySenderOptions options) {
  std::unique_ptr<LowLatencySender> sender(new LowLatencySender(context, std::move(options)));
  FANIN_TRY(sender->connector_.connect(url));
  return sender;
}

net::SendOutcome LowLatencySender::send(std::span<const memory::View> message) {
  if (!connector_.open()) return net::SendOutcome::closed;
  const net::SendOutcome outcome = connector_.link().send(message);
  if (outcome != net::SendOutcome::accepted) return outcome;
  ++counters_.messages;
  ++counters_.pages;
  for (const memory::View& extent : message) counters_.bytes += extent.size;
  return outcome;
}

net::SendOutcome LowLatencySender::send(const memory::View& header, const memory::View& payload) {
  return send(std::array{header, payload});
}

net::SendOutcome LowLatencySender::send(std::span<const std::byte> message) {
  if (!connector_.open()) return net::SendOutcome::closed;
  if (message.size() > filler_.pool().page_size()) return net::SendOutcome::too_large;
  const memory::View view = packed(filler_, message);
  if (!view.page) {
    wants_page_ = true;
    context_.at_turn_end(*this);
    return net::SendOutcome::backpressure;
  }
  return send({&view, 1});
}

void LowLatencySender::close() { connector_.close(); }

void LowLatencySender::on_open(const Hello& peer) {
  ++counters_.connections;
  message_max_ = peer.page_max;
  if (options_.on_connected) options_.on_connected();
}

void LowLatencySender::on_message(net::Event& event) {
  if (!options_.on_answer) return connector_.fail(CloseReason::bad_page);
  ++counters_.answers;
  answer_.receive(PeerId::none, std::move(event.message), std::move(event.rest));
  try {
    options_.on_answer(answer_);
  } catch (...) {
    connector_.fail(CloseReason::callback_threw);
  }
  answer_.release();
}

void LowLatencySender::on_writable() {
  if (options_.on_writable) options_.on_writable();
}

TurnEndTask::Answer LowLatencySender::at_turn_end() {
  if (wants_page_ && context_.send_pool().available() > 0) {
    wants_page_ = false;
    on_writable();
  }
  return {.stay = wants_page_};
}

void LowLatencySender::on_closed(CloseReason reason) {
  ++counters_.closed[static_cast<std::size_t>(reason)];
  if (options_.on_disconnected) options_.on_disconnected(reason);
}

// --- receiving ---

LowLatencyReceiver::LowLatencyReceiver(Context& context, LowLatencyReceiverOptions options)
    : options_(std::move(options)),
      filler_(context.send_pool()),
      acceptor_(context, *this, counters_,
                {.message_max = context.receive_pool().page_size() / 2, .low_latency = true}) {}

LowLatencyReceiver::~LowLatencyReceiver() = default;

Result<std::unique_ptr<LowLatencyReceiver>>
LowLatencyReceiver::listen(Context& context, const net::Url& url,
                           LowLatencyReceiverOptions options) {
  if (!options.on_message)
    return fail(ErrorKind::usage, "on_message is not set, so nobody would receive the messages");
  std::unique_ptr<LowLatencyReceiver> receiver(new LowLatencyReceiver(context, std::move(options)));
  receiver->url_ = FANIN_TRY(receiver->acceptor_.listen(url));
  return receiver;
}

net::SendOutcome LowLatencyReceiver::answer(PeerId id, const memory::View& message) {
  const std::shared_ptr<detail::Peer> peer = acceptor_.find(id);
  if (peer == nullptr) return net::SendOutcome::closed;
  if (message.size > peer->hello.message_max) return net::SendOutcome::too_large;
  if (peer->answer_owed) return net::SendOutcome::backpressure; // to its hello
  const net::SendOutcome outcome = peer->link.send({&message, 1});
  counters_.answers += outcome == net::SendOutcome::accepted ? 1 : 0;
  return outcome;
}

net::SendOutcome LowLatencyReceiver::answer(PeerId id, std::span<const std::byte> message) {
  if (message.size() > filler_.pool().page_size()) return net::SendOutcome::too_large;
  const memory::View view = packed(filler_, message);
  return answer(id, view.page ? view : memory::HeapPage::copy(message));
}

std::string LowLatencyReceiver::peer_name(PeerId id) const {
  const auto peer = acceptor_.find(id);
  return peer == nullptr ? "" : peer->name;
}

std::shared_ptr<detail::Peer> LowLatencyReceiver::admit(const Hello& hello) {
  return hello.kind == SocketKind::low_latency ? std::make_shared<detail::Peer>() : nullptr;
}

void LowLatencyReceiver::on_admitted(const std::shared_ptr<detail::Peer>& peer) {
  if (options_.on_connected) options_.on_connected(peer->id);
}

void LowLatencyReceiver::on_message(const std::shared_ptr<detail::Peer>& peer, net::Event& event) {
  ++counters_.messages;
  ++counters_.pages;
  counters_.bytes += event.message.size + event.rest.size;
  message_.receive(peer->id, std::move(event.message), std::move(event.rest));
  try {
    options_.on_message(message_);
  } catch (...) {
    if (peer->link) { // else it has closed the receiver
      acceptor_.close(*peer, CloseReason::callback_threw);
      on_closed(peer, CloseReason::callback_threw);
    }
  }
  message_.release();
}

void LowLatencyReceiver::on_writable(detail::Peer& peer) {
  if (options_.on_writable) options_.on_writable(peer.id);
}

void LowLatencyReceiver::on_closed(const std::shared_ptr<detail::Peer>& peer, CloseReason reason) {
  if (options_.on_disconnected) options_.on_disconnected(peer->id, reason);
}

} // namespace fanin::message
