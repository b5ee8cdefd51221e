#include "fanin/message/subscriber.hpp"

#include <algorithm>
#include <cstring>
#include <deque>
#include <set>
#include <utility>
#include <vector>

#include "fanin/base/try.hpp"
#include "fanin/memory/heap_page.hpp"
#include "fanin/message/connector.hpp"
#include "fanin/message/page_queue.hpp"
#include "fanin/message/subscription.hpp"

namespace fanin::message {
namespace detail {
namespace {

memory::View make_request(SubscriptionRequest request, std::span<const Tag> tags) {
  const FrameHeader header{static_cast<std::uint16_t>(request), 0,
                           static_cast<std::uint32_t>(tags.size_bytes())};
  std::byte* at = nullptr;
  memory::View view =
      memory::HeapPage::make(static_cast<std::uint32_t>(sizeof header + tags.size_bytes()), at);
  std::memcpy(at, &header, sizeof header);
  std::memcpy(at + sizeof header, tags.data(), tags.size_bytes());
  return view;
}

std::uint64_t tagged_max(const SubscriberOptions& options) {
  return std::min(options.message_max, Message::size_max - sizeof(Tag)) + sizeof(Tag);
}

} // namespace

class SubscriberSocket final : public Subscriber {
public:
  SubscriberSocket(Context& context, SubscriberOptions options);
  ~SubscriberSocket() override;
  Result<PeerId> subscribe(const net::Url& publisher, Tag tag, Mode mode) override;
  void unsubscribe(PeerId publisher, Tag tag, Mode mode) override;
  bool recv(Message& message) override;
  void close() override;
  bool connected() const override;
  std::string trouble() const override;

private:
  struct Connection; // to a publisher, of one mode
  [[nodiscard]] Connection* find(PeerId publisher, Mode mode) const;
  void pass_on(Connection& connection, net::Event& event);
  void cut_off(const PageSource& source, CloseReason reason);

  Context& context_;
  SubscriberOptions options_;
  PageQueue queue_;
  Message message_; // the one in the callback
  bool closed_ = false;
  std::vector<net::Url> publishers_; // by PeerId, from 1
  std::vector<std::unique_ptr<Connection>> connections_;
};

struct SubscriberSocket::Connection final : ConnectorOwner {
  Connection(SubscriberSocket& owner, PeerId publisher, Mode its_mode)
      : subscriber(owner),
        id(publisher),
        mode(its_mode),
        connector(owner.context_, *this, subscription_kind(its_mode),
                  {.reconnect = owner.options_.reconnect,
                   .send_queue_bytes = 1U << 20,
                   .low_latency = true,
                   .message_max = tagged_max(owner.options_)}) {}

  void on_open(const Hello& peer) override;
  void on_message(net::Event& event) override;
  void on_writable() override { send_requests(); }
  void on_closed(CloseReason reason) override;
  void request(SubscriptionRequest request, std::span<const Tag> tags);
  void send_requests();

  SubscriberSocket& subscriber;
  PeerId id;
  Mode mode;
  std::set<Tag> tags;
  std::deque<memory::View> requests; // that the transport has not taken
  std::shared_ptr<PageSource> source; // of this connection
  Connector connector;
};

void SubscriberSocket::Connection::on_open(const Hello& peer) {
  ++subscriber.counters_.connections;
  if (mode == Mode::high_throughput) {
    source = std::make_shared<PageSource>();
    source->id = id;
    source->lent_max = peer.lent_max;
  }
  requests.clear();
  const std::vector<Tag> all(tags.begin(), tags.end());
  const std::size_t tags_per_request = (peer.page_max - sizeof(FrameHeader)) / sizeof(Tag);
  for (std::size_t at = 0; at < all.size(); at += tags_per_request) {
    request(SubscriptionRequest::subscribe,
            std::span(all).subspan(at, std::min(tags_per_request, all.size() - at)));
  }
  if (subscriber.options_.on_connected) subscriber.options_.on_connected(id);
}

void SubscriberSocket::Connection::request(SubscriptionRequest request,
                                           std::span<const Tag> changed) {
  requests.push_back(make_request(request, changed));
  send_requests();
}

void SubscriberSocket::Connection::send_requests() {
  while (!requests.empty() &&
         connector.link().send({&requests.front(), 1}) == net::SendOutcome::accepted)
    requests.pop_front();
}

void SubscriberSocket::Connection::on_message(net::Event& event) {
  if (mode == Mode::high_throughput) {
    subscriber.queue_.push(source, std::move(event.message), std::move(event.rest));
  } else {
    subscriber.pass_on(*this, event);
  }
}

void SubscriberSocket::Connection::on_closed(CloseReason reason) {
  ++subscriber.counters_.closed[static_cast<std::size_t>(reason)];
  if (source != nullptr) subscriber.queue_.end(std::exchange(source, nullptr));
  if (subscriber.options_.on_disconnected) subscriber.options_.on_disconnected(id, reason);
}

SubscriberSocket::SubscriberSocket(Context& context, SubscriberOptions options)
    : context_(context),
      options_(std::move(options)),
      queue_(context, counters_,
             {.message_max = tagged_max(options_),
              .unfinished_max = options_.unfinished_max,
              .on_ready = options_.on_ready},
             [this](PageSource& source, CloseReason reason) { cut_off(source, reason); }) {}

SubscriberSocket::~SubscriberSocket() = default;

SubscriberSocket::Connection* SubscriberSocket::find(PeerId publisher, Mode mode) const {
  for (const auto& connection : connections_) {
    if (connection->id == publisher && connection->mode == mode) return connection.get();
  }
  return nullptr;
}

Result<PeerId> SubscriberSocket::subscribe(const net::Url& publisher, Tag tag, Mode mode) {
  if (closed_) return fail(ErrorKind::usage, "this subscriber is closed");
  const auto known = std::find(publishers_.begin(), publishers_.end(), publisher);
  const auto id = static_cast<PeerId>(known - publishers_.begin() + 1);
  Connection* connection = find(id, mode);
  if (connection == nullptr) {
    auto made = std::make_unique<Connection>(*this, id, mode);
    FANIN_TRY(made->connector.connect(publisher));
    if (known == publishers_.end()) publishers_.push_back(publisher);
    connection = connections_.emplace_back(std::move(made)).get();
  }
  if (connection->tags.insert(tag).second && connection->connector.open())
    connection->request(SubscriptionRequest::subscribe, {&tag, 1});
  return id;
}

void SubscriberSocket::unsubscribe(PeerId publisher, Tag tag, Mode mode) {
  Connection* const connection = find(publisher, mode);
  if (connection == nullptr || connection->tags.erase(tag) == 0 || !connection->connector.open())
    return;
  connection->request(SubscriptionRequest::unsubscribe, {&tag, 1});
}

bool SubscriberSocket::recv(Message& message) {
  while (queue_.next(message)) {
    if (message.take_tag()) {
      ++counters_.messages;
      counters_.bytes += message.size();
      return true;
    }
    queue_.reject(*queue_.reading(), CloseReason::bad_page);
  }
  return false;
}

void SubscriberSocket::pass_on(Connection& connection, net::Event& event) {
  ++counters_.pages;
  message_.receive(connection.id, std::move(event.message), std::move(event.rest));
  if (!message_.take_tag()) return connection.connector.fail(CloseReason::bad_page);
  ++counters_.messages;
  counters_.bytes += message_.size();
  if (options_.on_message && !message_.hand_to(options_.on_message))
    connection.connector.fail(CloseReason::callback_threw);
}

void SubscriberSocket::cut_off(const PageSource& source, CloseReason reason) {
  for (const auto& connection : connections_) {
    if (connection->source.get() == &source) return connection->connector.fail(reason);
  }
  ++counters_.closed[static_cast<std::size_t>(reason)]; // it has gone already
}

bool SubscriberSocket::connected() const {
  return std::all_of(connections_.begin(), connections_.end(),
                     [](const auto& connection) { return connection->connector.open(); });
}

std::string SubscriberSocket::trouble() const {
  for (const auto& connection : connections_) {
    if (const std::string& trouble = connection->connector.trouble(); !trouble.empty())
      return trouble;
  }
  return {};
}

void SubscriberSocket::close() {
  closed_ = true;
  for (const auto& connection : connections_) connection->connector.close();
}

} // namespace detail

std::unique_ptr<Subscriber> Subscriber::make(Context& context, SubscriberOptions options) {
  return std::make_unique<detail::SubscriberSocket>(context, std::move(options));
}

} // namespace fanin::message
