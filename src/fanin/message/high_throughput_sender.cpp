#include "fanin/message/high_throughput_sender.hpp"

#include <algorithm>
#include <array>
#include <deque>

#include <fmt/format.h>

#include "fanin/base/try.hpp"
#include "fanin/memory/heap_page.hpp"
#include "fanin/message/connector.hpp"

namespace fanin::message {
namespace detail {
namespace {

// Each counts where it begins.
std::uint64_t messages_in(const Parcel& parcel) {
  PageReader reader{parcel.page.bytes(), parcel.payload.size};
  std::uint64_t messages = 0;
  Frame frame;
  while (reader.next(frame) == PageReader::Step::frame)
    messages += (frame.header.flags & FrameHeader::continued) == 0 ? 1 : 0;
  return messages;
}

} // namespace

class HighThroughputSenderSocket final : public HighThroughputSender, ConnectorOwner, TurnEndTask {
public:
  HighThroughputSenderSocket(Context& context, HighThroughputSenderOptions options);
  ~HighThroughputSenderSocket() override;
  [[nodiscard]] Result<> connect(const net::Url& url) { return connector_.connect(url); }

  using HighThroughputSender::send;
  net::SendOutcome send(const memory::View& message) override;
  void flush() override;
  bool sent() const override { return page_.empty() && outbox_.empty(); }
  void close() override;
  bool connected() const override { return connector_.open(); }
  std::string trouble() const override { return connector_.trouble(); }
  std::uint64_t message_max() const override { return message_max_; }

private:
  void on_open(const Hello& peer) override;
  void on_message(net::Event& event) override;
  void on_writable() override;
  void on_closed(CloseReason reason) override;
  Answer at_turn_end() override;

  net::SendOutcome send_slowly(std::span<const std::byte> message) override;
  net::SendOutcome send_split(std::span<const std::byte> message);
  net::SendOutcome send_large(const memory::View& message);
  [[nodiscard]] net::SendOutcome check(std::uint64_t size) const;
  net::SendOutcome refuse();
  [[nodiscard]] bool make_room(std::size_t size);
  void hand_over_page();
  void pack_page();
  void hand_over(Parcel parcel);
  [[nodiscard]] bool transmit(const Parcel& parcel);
  void empty_outbox();
  void forget_partly_sent();
  void forget_rest(); // of the message whose pieces come first
  void proceed();
  void finish_closing();
  [[nodiscard]] bool can_take() const;

  Context& context_;
  HighThroughputSenderOptions options_;
  std::deque<Parcel> outbox_; // before what is in page_; not taken by the transport yet
  std::uint64_t message_max_ = 0;
  std::uint32_t page_max_ = 0; // of a transport message; bytes
  std::uint32_t last_turn_end_ = 0; // of page_, at the last end of a turn
  bool blocked_ = false; // the transport said backpressure
  bool wants_writable_ = false; // the application was told backpressure
  bool partly_sent_ = false; // the transport has only the beginning of a message
  bool beginning_lost_ = false; // of a message whose rest is in outbox_
  bool closing_ = false;
  net::Timer deadline_;
  Connector connector_;
};

HighThroughputSenderSocket::HighThroughputSenderSocket(Context& context,
                                                       HighThroughputSenderOptions options)
    : HighThroughputSender(context.send_pool()),
      context_(context),
      options_(std::move(options)),
      deadline_([this] { flush(); }),
      connector_(context, *this, SocketKind::high_throughput,
                 {.reconnect = options_.reconnect, .send_queue_bytes = options_.send_queue_bytes}) {
}

HighThroughputSenderSocket::~HighThroughputSenderSocket() {
  context_.forget(*this);
  if (closing_ && connector_.open()) context_.closing(-1);
}

// --- what send() does when the page has no room ---

net::SendOutcome HighThroughputSenderSocket::send_slowly(std::span<const std::byte> message) {
  if (const auto outcome = check(message.size()); outcome != net::SendOutcome::accepted)
    return outcome;
  if (message.size() > page_.payload_max()) return send_split(message);
  if (!make_room(message.size())) return refuse();
  return send(message);
}

net::SendOutcome HighThroughputSenderSocket::check(std::uint64_t size) const {
  if (!connector_.open() || closing_) return net::SendOutcome::closed;
  return size > message_max_ ? net::SendOutcome::too_large : net::SendOutcome::accepted;
}

net::SendOutcome HighThroughputSenderSocket::refuse() {
  wants_writable_ = true;
  context_.at_turn_end(*this); // pages may come back without a word from the transport
  return net::SendOutcome::backpressure;
}

bool HighThroughputSenderSocket::make_room(std::size_t size) {
  if (!page_.make_room(size, [this] { hand_over_page(); })) return false;
  if (page_.empty() && options_.flush.deadline != FlushPolicy::never_flush)
    deadline_.start(context_.loop(), context_.loop().now() + options_.flush.deadline);
  context_.at_turn_end(*this);
  return true;
}

net::SendOutcome HighThroughputSenderSocket::send_split(std::span<const std::byte> message) {
  if (blocked_ || !outbox_.empty()) return refuse();
  const std::size_t piece_max = page_.payload_max();
  const std::size_t pages = (message.size() + piece_max - 1) / piece_max;
  if (pages > context_.send_pool().available()) return send_large(memory::HeapPage::copy(message));
  pack_page();
  ++counters_.messages;
  counters_.bytes += message.size();
  for (std::size_t at = 0; at < message.size(); at += piece_max) {
    const auto piece = message.subspan(at, std::min(piece_max, message.size() - at));
    const bool first = at == 0;
    const bool last = at + piece.size() == message.size();
    page_.release();
    const bool opened = page_.open();
    FANIN_ASSERT(opened);
    memory::copy(page_.append(piece.size(), 0, piece_flags(first, last)), piece);
    hand_over({.page = page_.unsent(), .continues = !first, .goes_on = !last});
    page_.sent();
  }
  page_.suspend(); // what is left of the last one is for the messages to come
  context_.at_turn_end(*this);
  return net::SendOutcome::accepted;
}

net::SendOutcome HighThroughputSenderSocket::send(const memory::View& message) {
  if (message.size < copy_below_bytes) return send(message.bytes());
  if (const auto outcome = check(message.size); outcome != net::SendOutcome::accepted)
    return outcome;
  return send_large(message);
}

net::SendOutcome HighThroughputSenderSocket::send_large(const memory::View& message) {
  if (blocked_ || !outbox_.empty()) return refuse();
  const std::uint32_t piece_max = page_max_ - static_cast<std::uint32_t>(sizeof(FrameHeader));
  const std::size_t pieces = (std::size_t{message.size} + piece_max - 1) / piece_max;
  const std::size_t headers_per_page = context_.send_pool().page_size() / sizeof(FrameHeader);
  if (context_.send_pool().available() < 1 + pieces / headers_per_page) return refuse();
  ++counters_.messages;
  counters_.bytes += message.size;
  std::uint32_t at = 0;
  while (at < message.size) {
    const std::uint32_t size = std::min(piece_max, message.size - at);
    const bool first = at == 0;
    const bool last = at + size == message.size;
    // Together with what was gathered before it, if the peer takes so much at once.
    if (page_.has_page() &&
        (page_.size() + sizeof(FrameHeader) + size > page_max_ || !page_.fits(0))) {
      pack_page();
      if (!page_.fits(0)) page_.release();
    }
    const bool opened = page_.open() && page_.append_header(size, piece_flags(first, last));
    FANIN_ASSERT(opened);
    hand_over({.page = page_.unsent(),
               .payload = message.subview(at, size),
               .continues = !first,
               .goes_on = !last});
    page_.sent();
    at += size;
  }
  page_.suspend();
  context_.at_turn_end(*this);
  return net::SendOutcome::accepted;
}

// --- handing over to the transport ---

void HighThroughputSenderSocket::flush() {
  hand_over_page();
  page_.suspend();
  context_.at_turn_end(*this);
}

// What was gathered, on its own. It stays in the page if it cannot go now.
void HighThroughputSenderSocket::hand_over_page() {
  if (page_.empty() || blocked_ || !outbox_.empty() || !connector_.open()) return;
  if (transmit({.page = page_.unsent()})) page_.sent();
}

// The same, but out of the page in any case.
void HighThroughputSenderSocket::pack_page() {
  if (page_.empty()) return;
  hand_over({.page = page_.unsent()});
  page_.sent();
}

void HighThroughputSenderSocket::hand_over(Parcel parcel) {
  if (!blocked_ && outbox_.empty() && transmit(parcel)) return;
  outbox_.push_back(std::move(parcel));
}

// False: not now.
bool HighThroughputSenderSocket::transmit(const Parcel& parcel) {
  const std::array extents{parcel.page, parcel.payload};
  const auto count = parcel.payload.size == 0 ? 1U : 2U;
  switch (connector_.link().send(std::span(extents).first(count))) {
  case net::SendOutcome::accepted:
    ++counters_.pages;
    partly_sent_ = parcel.goes_on;
    return true;
  case net::SendOutcome::too_large: // gathered for another process, which took more
    counters_.lost += messages_in(parcel);
    beginning_lost_ = parcel.goes_on;
    return true;
  case net::SendOutcome::backpressure: blocked_ = true; return false;
  case net::SendOutcome::closed: return false;
  }
  return false;
}

void HighThroughputSenderSocket::empty_outbox() {
  while (!blocked_ && !outbox_.empty() && transmit(outbox_.front())) {
    outbox_.pop_front();
    if (std::exchange(beginning_lost_, false)) forget_rest();
  }
}

// The rest of a message is nothing to a connection that has not seen its beginning.
void HighThroughputSenderSocket::forget_partly_sent() {
  if (!std::exchange(partly_sent_, false)) return;
  ++counters_.lost;
  forget_rest();
}

void HighThroughputSenderSocket::forget_rest() {
  while (!outbox_.empty() && outbox_.front().continues) {
    const bool last = !outbox_.front().goes_on;
    outbox_.pop_front();
    if (last) break;
  }
}

// --- what happens to it ---

void HighThroughputSenderSocket::on_open(const Hello& peer) {
  ++counters_.connections;
  message_max_ = std::min<std::uint64_t>(peer.message_max, 0xffff'ffff);
  page_max_ = peer.page_max;
  page_.limit_unsent(options_.page_size == 0 ? page_max_ : std::min(options_.page_size, page_max_));
  proceed();
  if (options_.on_connected) options_.on_connected();
}

void HighThroughputSenderSocket::on_message(net::Event&) { connector_.fail(CloseReason::bad_page); }

void HighThroughputSenderSocket::on_writable() { proceed(); }

void HighThroughputSenderSocket::proceed() {
  blocked_ = false;
  empty_outbox();
  hand_over_page();
  page_.suspend(); // the next message starts the deadline
  context_.at_turn_end(*this);
  if (closing_) finish_closing();
}

void HighThroughputSenderSocket::on_closed(CloseReason reason) {
  ++counters_.closed[static_cast<std::size_t>(reason)];
  blocked_ = false;
  page_.suspend();
  forget_partly_sent();
  if (closing_) { // nobody is there for the rest
    connector_.close();
    context_.closing(-1);
  }
  if (options_.on_disconnected) options_.on_disconnected(reason);
}

void HighThroughputSenderSocket::close() {
  if (context_.is_copy() || std::exchange(closing_, true)) return;
  flush();
  context_.closing(+1);
  if (!connector_.open() || sent()) finish_closing();
}

void HighThroughputSenderSocket::finish_closing() {
  if (connector_.open() && !sent()) return;
  connector_.close();
  context_.closing(-1);
}

TurnEndTask::Answer HighThroughputSenderSocket::at_turn_end() {
  const bool can_send = connector_.open() && !blocked_;
  bool worked = false;
  if (can_send && page_.empty()) {
    deadline_.cancel();
    page_.release(); // an idle connection holds none
  } else if (can_send && options_.flush.idle) {
    if (std::exchange(last_turn_end_, page_.end()) == page_.end()) flush();
    worked = true;
  }
  if (wants_writable_ && can_take()) {
    wants_writable_ = false;
    if (options_.on_writable) options_.on_writable();
  }
  const bool waits_for_page = wants_writable_ && !blocked_;
  const bool look_again =
      page_.has_page() && connector_.open() && !blocked_ && (options_.flush.idle || page_.empty());
  return {.stay = look_again || waits_for_page, .worked = worked};
}

// Whether a message that was refused could be taken now.
bool HighThroughputSenderSocket::can_take() const {
  if (!connector_.open() || blocked_ || !outbox_.empty()) return false;
  return page_.has_page() || context_.send_pool().available() > 0;
}

} // namespace detail

Result<std::unique_ptr<HighThroughputSender>>
HighThroughputSender::connect(Context& context, const net::Url& url,
                              HighThroughputSenderOptions options) {
  if (options.page_size != 0 && options.page_size < Hello::page_max_least) {
    return fail(ErrorKind::usage, fmt::format("page_size is {} bytes, and must be at least {}",
                                              options.page_size, Hello::page_max_least));
  }
  auto sender = std::make_unique<detail::HighThroughputSenderSocket>(context, std::move(options));
  FANIN_TRY(sender->connect(url));
  return sender;
}

} // namespace fanin::message
