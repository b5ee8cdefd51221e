#include "fanin/message/publisher.hpp"

#include <algorithm>
#include <utility>
#include <vector>

#include "fanin/base/try.hpp"
#include "fanin/memory/heap_page.hpp"
#include "fanin/message/acceptor.hpp"
#include "fanin/message/message.hpp"
#include "fanin/message/subscription_table.hpp"
#include "fanin/net/page_filler.hpp"

namespace fanin::message {
namespace detail {
namespace {

// How long close() waits for subscribers that take nothing, as the transports do.
constexpr Duration linger_timeout = std::chrono::seconds{5};

} // namespace

// It has slightly more than 400 lines: how a message is given to a group of subscribers, slow ones
// included, stays together. A subscriber, its group and the table of tags are types of their own
// (subscription_group.hpp).
class PublisherSocket final : public Publisher, AcceptorOwner, TurnEndTask {
public:
  PublisherSocket(Context& context, PublisherOptions options);
  ~PublisherSocket() override;

  net::SendOutcome publish(Tag tag, std::span<const std::byte> message) override;
  net::SendOutcome publish(Tag tag, const memory::View& message) override;
  void flush() override;
  void close() override;
  bool has_subscriber(Tag tag) override { return !table_.find(tag).empty(); }
  std::uint64_t skipped(PeerId subscriber) const override;

private:
  std::shared_ptr<Peer> admit(const Hello& hello) override;
  void on_admitted(const std::shared_ptr<Peer>& peer) override;
  void on_message(const std::shared_ptr<Peer>& peer, net::Event& event) override;
  void on_writable(Peer& peer) override;
  void on_closed(const std::shared_ptr<Peer>& peer, CloseReason reason) override;
  Answer at_turn_end() override;

  net::SendOutcome publish(std::span<Group* const> groups, Tag tag,
                           std::span<const std::byte> message, memory::View view);
  [[nodiscard]] bool prepare(Group& group, std::size_t size, bool by_view);
  [[nodiscard]] bool make_room(Group& group, std::size_t size);
  net::SendOutcome refuse();
  [[nodiscard]] bool deliver_or_drop(Group& group);
  [[nodiscard]] bool has_room(const Member& member) const;
  void schedule_disconnect(Member& member, const Group& group);
  void count_skipped(Member& member, std::uint64_t messages);
  void skip(Group& group);
  void give(Group& group, Parcel parcel);
  void give_large(Group& group, Tag tag, const memory::View& message);

  void disconnect_scheduled();

  void watch(Group& group);
  void flush(Group& group);
  [[nodiscard]] bool serve(Group& group);
  void change_subscriptions();
  void tell_changes();
  void change_subscriptions(const std::shared_ptr<Peer>& peer);
  void disconnect(const std::shared_ptr<Peer>& peer, CloseReason reason);
  void made_progress();
  void finish_closing();
  void end_closing();
  void expire_closing();

  Context& context_;
  PublisherOptions options_;
  net::PageFiller filler_; // low latency
  SubscriptionTable table_;
  std::vector<PeerId> to_disconnect_;
  std::vector<PeerId> to_change_; // have asked for other tags in this turn
  bool wants_writable_ = false; // the application was told backpressure
  bool progress_ = false; // since then, a subscriber has read or has gone
  bool read_since_linger_ = false; // closing: a subscriber has, since linger_ was started
  bool closing_ = false;
  bool closed_ = false;
  net::Timer deadline_;
  net::Timer linger_; // of close()
};

PublisherSocket::PublisherSocket(Context& context, PublisherOptions options)
    : context_(context),
      options_(std::move(options)),
      filler_(context.send_pool()),
      table_(context.send_pool(), context.random().next()),
      deadline_([this] { flush(); }),
      linger_([this] { expire_closing(); }) {
  acceptor_ = std::make_unique<Acceptor>(
      context, static_cast<AcceptorOwner&>(*this), counters_,
      Acceptor::Options{.send_queue_bytes = options_.send_queue_bytes / 2, // the rest waits here
                        .low_latency = true});
}

PublisherSocket::~PublisherSocket() {
  context_.forget(*this);
  if (closing_ && !closed_) context_.closing(-1);
}

// --- publishing ---

net::SendOutcome PublisherSocket::publish(Tag tag, std::span<const std::byte> message) {
  const auto groups = table_.find(tag);
  if (groups.size() != 1) return publish(groups, tag, message, {});
  Group& group = *groups.front();
  if (message.size() + tag_size > group.message_max) return publish(groups, tag, message, {});
  std::byte* const at = group.page.append(message.size() + tag_size);
  if (at == nullptr) return publish(groups, tag, message, {});
  write_tagged(at, tag, message);
  ++group.messages;
  ++counters_.messages;
  counters_.bytes += message.size();
  return net::SendOutcome::accepted;
}

net::SendOutcome PublisherSocket::publish(Tag tag, const memory::View& message) {
  if (message.size < copy_below_bytes) return publish(tag, message.bytes());
  return publish(table_.find(tag), tag, message.bytes(), message);
}

// `view`: of the same bytes; or empty, then one is made where it is needed. Either all groups get
// the message or, by a refusal, none.
net::SendOutcome PublisherSocket::publish(std::span<Group* const> groups, Tag tag,
                                          std::span<const std::byte> message, memory::View view) {
  if (closing_) return net::SendOutcome::closed;
  if (message.size() + tag_size > Message::size_max) return net::SendOutcome::too_large;
  const bool by_view = view.size > 0;
  for (Group* const group : groups) {
    if (!prepare(*group, message.size(), by_view)) return refuse();
  }
  memory::View prefix; // low latency: the tag, and the message too unless it is a view
  memory::View alone; // for all groups that have no page
  memory::View whole = view; // for all groups that get it in pieces
  for (Group* const group : groups) {
    switch (group->delivery_mode(message.size(), by_view)) {
    case DeliveryMode::none: skip(*group); continue;
    case DeliveryMode::alone:
      if (prefix.size == 0)
        prefix = tagged(filler_, tag, by_view ? std::span<const std::byte>{} : message);
      give(*group, {prefix, view});
      break;
    case DeliveryMode::gathered:
      if (std::byte* const at = group->page.append(message.size() + tag_size)) {
        write_tagged(at, tag, message);
      } else {
        if (alone.size == 0) alone = framed(tag, message);
        give(*group, {alone, {}});
      }
      break;
    case DeliveryMode::large:
      if (whole.size == 0) whole = memory::HeapPage::copy(message);
      give_large(*group, tag, whole);
      break;
    }
    ++group->messages;
  }
  ++counters_.messages;
  counters_.bytes += message.size();
  disconnect_scheduled();
  return net::SendOutcome::accepted;
}

// So that the message can be given to the group. False: wait for one of its members.
bool PublisherSocket::prepare(Group& group, std::size_t size, bool by_view) {
  switch (group.delivery_mode(size, by_view)) {
  case DeliveryMode::none: return true;
  case DeliveryMode::alone:
  case DeliveryMode::large: return deliver_or_drop(group);
  case DeliveryMode::gathered: return make_room(group, size + tag_size);
  }
  return false;
}

net::SendOutcome PublisherSocket::refuse() {
  wants_writable_ = true;
  progress_ = false;
  context_.at_turn_end(*this);
  return net::SendOutcome::backpressure;
}

// A page with room for a frame of that size; or none, where the pool is empty. Waiting for one
// could take for ever: there may be more groups than pages, or all pages with one who does not
// read. So the message goes alone then, and the queues of the subscribers bound what there is.
bool PublisherSocket::make_room(Group& group, std::size_t size) {
  if (group.page.has_page() && !group.page.fits(size)) {
    if (!deliver_or_drop(group)) return false;
    group.release_page();
  }
  if (!group.page.open()) return deliver_or_drop(group);
  watch(group);
  return true;
}

// Everybody has what was gathered, or will have it, or is dealt with as a slow subscriber. False:
// wait for one.
bool PublisherSocket::deliver_or_drop(Group& group) {
  bool waits = false;
  for (Member* const member : group.members) {
    if (has_room(*member)) {
      if (!member->deliver(counters_)) member->put(group.rest_for(*member));
    } else if (options_.slow == SlowSubscriber::block) {
      waits = true;
      continue;
    } else if (options_.slow == SlowSubscriber::disconnect) {
      schedule_disconnect(*member, group);
    } else {
      count_skipped(*member, group.messages - member->seen);
    }
    member->offset = group.page.end();
    member->seen = group.messages;
  }
  return !waits;
}

// Whether more may wait for it.
bool PublisherSocket::has_room(const Member& member) const {
  return member.disconnecting || member.outbox_bytes <= options_.send_queue_bytes / 2;
}

// What waits for it is cut with it, and the message that is being published.
void PublisherSocket::schedule_disconnect(Member& member, const Group& group) {
  if (std::exchange(member.disconnecting, true)) return;
  to_disconnect_.push_back(member.id);
  std::uint64_t cut = group.messages - member.seen + 1;
  for (const Parcel& parcel : member.outbox) cut += parcel.messages;
  count_skipped(member, cut);
}

void PublisherSocket::count_skipped(Member& member, std::uint64_t messages) {
  member.skipped += messages;
  counters_.skipped += messages;
}

// Not one of the group's messages: what its members have seen of those stays true.
void PublisherSocket::skip(Group& group) {
  for (Member* const member : group.members) count_skipped(*member, 1);
  counters_.too_large += group.members.size();
}

// To each member as a transport message of its own.
void PublisherSocket::give(Group& group, Parcel parcel) {
  parcel.messages = 1;
  for (Member* const member : group.members) {
    member->seen = group.messages + 1;
    if (member->hand_over(parcel, counters_)) continue;
    if (options_.slow == SlowSubscriber::sample && !has_room(*member)) {
      count_skipped(*member, 1);
    } else {
      member->put(parcel);
    }
  }
}

// Its tag and its bytes are pieces of one message: so the bytes need no copy.
void PublisherSocket::give_large(Group& group, Tag tag, const memory::View& message) {
  for (Member* const member : group.members) {
    member->skipping =
        options_.slow == SlowSubscriber::sample && (member->blocked || !member->outbox.empty());
    if (member->skipping) count_skipped(*member, 1);
  }
  const std::uint32_t piece_max = group.page_max - Group::prefix_max;
  for (std::uint32_t at = 0; at < message.size;) {
    const std::uint32_t size = std::min(piece_max, message.size - at);
    const bool last = at + size == message.size;
    const FrameHeader header{0, piece_flags(false, last), size};
    const Parcel parcel{.page = group.prefix_for(at == 0 ? &tag : nullptr, header),
                        .payload = message.subview(at, size),
                        .messages = last ? 1U : 0U};
    for (Member* const member : group.members) {
      if (!member->skipping && !member->hand_over(parcel, counters_)) member->put(parcel);
      member->offset = group.page.end();
      member->seen = group.messages + 1;
    }
    at += size;
  }
  group.page.suspend();
  watch(group);
}

void PublisherSocket::disconnect_scheduled() {
  while (!to_disconnect_.empty()) {
    const auto peer = acceptor_->find(to_disconnect_.back());
    to_disconnect_.pop_back();
    if (peer != nullptr) disconnect(peer, CloseReason::too_slow);
  }
}

// --- the turn's end ---

void PublisherSocket::watch(Group& group) {
  group.listed = true;
  if (!deadline_.active() && options_.flush.deadline != FlushPolicy::never_flush)
    deadline_.start(context_.loop(), context_.loop().now() + options_.flush.deadline);
  context_.at_turn_end(*this);
}

void PublisherSocket::flush() {
  for (const auto& group : table_.groups()) {
    if (!group->page.has_page()) continue;
    flush(*group);
    group->listed = true;
    context_.at_turn_end(*this);
  }
}

void PublisherSocket::flush(Group& group) {
  for (Member* const member : group.members) (void)member->deliver(counters_);
  group.page.suspend();
}

// True if it did something.
bool PublisherSocket::serve(Group& group) {
  const bool added = std::exchange(group.seen_end, group.page.end()) != group.page.end();
  if (group.delivered()) {
    group.release_page(); // who has nothing to say holds none
    group.listed = false;
    return false;
  }
  if (!options_.flush.idle) {
    group.listed = false; // until the deadline
    return false;
  }
  if (added) return true;
  flush(group);
  group.listed = group.delivered(); // otherwise until a member is writable
  return true;
}

TurnEndTask::Answer PublisherSocket::at_turn_end() {
  Answer answer;
  change_subscriptions();
  tell_changes();
  for (const auto& group : table_.groups()) {
    if (!group->listed) continue;
    answer.worked |= serve(*group);
    answer.stay |= group->listed;
  }
  if (wants_writable_ && progress_) {
    wants_writable_ = false;
    if (options_.on_writable) options_.on_writable();
  }
  answer.stay |= wants_writable_ || !to_change_.empty() || table_.changed();
  for (const auto& group : table_.groups()) answer.stay |= group->listed; // filled by the callback
  return answer;
}

// --- subscribers ---

std::shared_ptr<Peer> PublisherSocket::admit(const Hello& hello) {
  if (closing_) return nullptr;
  for (const Mode mode : {Mode::low_latency, Mode::high_throughput}) {
    if (hello.kind != subscription_kind(mode)) continue;
    auto member = std::make_shared<Member>();
    member->mode = mode;
    return member;
  }
  return nullptr;
}

void PublisherSocket::on_admitted(const std::shared_ptr<Peer>& peer) {
  if (connections() > options_.subscribers_max)
    return acceptor_->close(*peer, CloseReason::too_many);
  if (options_.on_subscriber) options_.on_subscriber(peer->id);
}

// A change costs as much as all tags that the member has: so there is one a turn, or where more is
// asked for than a member can have, whatever the requests look like.
void PublisherSocket::on_message(const std::shared_ptr<Peer>& peer, net::Event& event) {
  auto& member = static_cast<Member&>(*peer);
  const bool first = member.wishes.empty();
  if (event.rest.size > 0 || !member.read_request(event.message.bytes())) {
    disconnect(peer, CloseReason::bad_page);
  } else if (member.wishes.size() > options_.tags_max) {
    change_subscriptions(peer);
    context_.at_turn_end(*this);
  } else if (first && !member.wishes.empty()) {
    to_change_.push_back(member.id);
    context_.at_turn_end(*this);
  }
}

void PublisherSocket::change_subscriptions() {
  for (const PeerId id : std::exchange(to_change_, {})) {
    if (const auto peer = acceptor_->find(id)) change_subscriptions(peer);
  }
}

void PublisherSocket::tell_changes() {
  for (const Tag tag : table_.take_changes()) {
    if (closing_) return; // by a callback
    const auto& told =
        has_subscriber(tag) ? options_.on_first_subscriber : options_.on_last_subscriber_gone;
    if (told) told(tag);
  }
}

void PublisherSocket::change_subscriptions(const std::shared_ptr<Peer>& peer) {
  auto& member = static_cast<Member&>(*peer);
  table_.take_wishes(member);
  ++counters_.merges;
  if (member.tags.size() > options_.tags_max) return disconnect(peer, CloseReason::bad_page);
  table_.place(member);
  member.empty_outbox(counters_);
  while (table_.tags() > options_.tags_sum_max) {
    const Member* const greatest = table_.greatest();
    const auto found = greatest == nullptr ? nullptr : acceptor_->find(greatest->id);
    if (found == nullptr) return;
    disconnect(found, CloseReason::bad_page);
  }
}

void PublisherSocket::disconnect(const std::shared_ptr<Peer>& peer, CloseReason reason) {
  acceptor_->close(*peer, reason);
  on_closed(peer, reason);
}

void PublisherSocket::on_writable(Peer& peer) {
  auto& member = static_cast<Member&>(peer);
  member.blocked = false;
  read_since_linger_ = true;
  member.empty_outbox(counters_);
  if (member.group != nullptr) {
    (void)member.deliver(counters_);
    if (member.group->page.has_page()) member.group->listed = true;
  }
  made_progress();
}

void PublisherSocket::on_closed(const std::shared_ptr<Peer>& peer, CloseReason reason) {
  table_.remove(static_cast<Member&>(*peer));
  if (options_.on_subscriber_gone) options_.on_subscriber_gone(peer->id, reason);
  made_progress();
}

void PublisherSocket::made_progress() {
  progress_ = true;
  context_.at_turn_end(*this);
  if (closing_ && !closed_) finish_closing();
}

std::uint64_t PublisherSocket::skipped(PeerId id) const {
  const auto peer = acceptor_->find(id);
  return peer == nullptr ? 0 : static_cast<const Member&>(*peer).skipped;
}

void PublisherSocket::close() {
  if (context_.is_copy() || std::exchange(closing_, true)) return;
  context_.closing(+1);
  read_since_linger_ = false;
  if (options_.slow != SlowSubscriber::block)
    linger_.start(context_.loop(), context_.loop().now() + linger_timeout);
  flush();
  finish_closing();
}

void PublisherSocket::finish_closing() {
  const bool all = std::ranges::all_of(table_.groups(), [](const auto& group) {
    return group->delivered() && std::ranges::all_of(group->members, [](const Member* member) {
             return member->outbox.empty();
           });
  });
  if (all) end_closing();
}

void PublisherSocket::expire_closing() {
  if (!std::exchange(read_since_linger_, false)) return end_closing();
  linger_.start(context_.loop(), context_.loop().now() + linger_timeout);
}

void PublisherSocket::end_closing() {
  linger_.cancel();
  closed_ = true;
  table_.clear();
  acceptor_->close();
  context_.closing(-1);
}

} // namespace detail

Result<std::unique_ptr<Publisher>> Publisher::listen(Context& context, const net::Url& url,
                                                     PublisherOptions options) {
  auto publisher = std::make_unique<detail::PublisherSocket>(context, std::move(options));
  publisher->url_ = FANIN_TRY(publisher->also_listen(url));
  return publisher;
}

} // namespace fanin::message
