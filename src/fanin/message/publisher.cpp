#include "fanin/message/publisher.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "fanin/memory/copy.hpp"
#include "fanin/memory/heap_page.hpp"
#include "fanin/message/message.hpp"

namespace fanin::message {
namespace {

constexpr std::uint32_t tag_size = sizeof(Tag);
// In front of the first piece of a large message: a frame with the tag, and the header of the
// piece.
constexpr std::uint32_t large_prefix_size = 3 * sizeof(FrameHeader);
// How long a subscriber may take to read the rest, as the transports give it.
constexpr Duration linger_timeout = std::chrono::seconds{5};

} // namespace

Publisher::Publisher(Context& context, PublisherOptions options)
    : context_(context),
      options_(std::move(options)),
      filler_(context.send_pool()),
      table_(context.send_pool(), context.random().next()),
      deadline_([this] { flush(); }),
      linger_([this] { end_closing(); }),
      acceptor_(context, *this, counters_,
                {.send_queue_bytes = options_.send_queue_bytes / 2, // the rest waits here
                 .low_latency = true}) {}

Publisher::~Publisher() {
  context_.forget(*this);
  if (closing_ && !closed_) context_.closing(-1);
}

Result<std::unique_ptr<Publisher>> Publisher::listen(Context& context, const net::Url& url,
                                                     PublisherOptions options) {
  std::unique_ptr<Publisher> publisher(new Publisher(context, std::move(options)));
  auto listening = publisher->acceptor_.listen(url);
  if (!listening) return std::unexpected(listening.error());
  publisher->url_ = std::move(*listening);
  return publisher;
}

// --- publishing ---

net::SendOutcome Publisher::publish(Tag tag, std::span<const std::byte> message) {
  const auto groups = table_.find(tag);
  if (groups.size() != 1) return publish(groups, tag, message, {});
  Group& group = *groups.front();
  if (message.size() + tag_size > group.message_max) return publish(groups, tag, message, {});
  std::byte* const at = group.page.append(message.size() + tag_size);
  if (at == nullptr) return publish(groups, tag, message, {});
  write(at, tag, message);
  ++group.messages;
  ++counters_.messages;
  counters_.bytes += message.size();
  return net::SendOutcome::accepted;
}

net::SendOutcome Publisher::publish(Tag tag, const memory::View& message) {
  if (message.size < copy_below_bytes) return publish(tag, message.bytes());
  return publish(table_.find(tag), tag, message.bytes(), message);
}

// `view`: of the same bytes; or empty, then one is made where it is needed. Either all groups get
// the message or, by a refusal, none.
net::SendOutcome Publisher::publish(std::span<Group* const> groups, Tag tag,
                                    std::span<const std::byte> message, memory::View view) {
  if (closing_) return net::SendOutcome::closed;
  if (message.size() + tag_size > Message::size_max) return net::SendOutcome::too_large;
  const bool by_view = view.size > 0;
  for (Group* const group : groups) {
    if (!prepare(*group, message.size(), by_view)) return refuse();
  }
  memory::View prefix; // low latency: the tag, and the message too unless it is a view
  memory::View framed; // for all groups that have no page
  memory::View whole = view; // for all groups that get it in pieces
  for (Group* const group : groups) {
    switch (delivery_mode(*group, message.size(), by_view)) {
    case DeliveryMode::none: skip(*group); continue;
    case DeliveryMode::alone:
      if (prefix.size == 0) prefix = tagged(tag, by_view ? std::span<const std::byte>{} : message);
      give(*group, {prefix, view});
      break;
    case DeliveryMode::gathered:
      if (std::byte* const at = group->page.append(message.size() + tag_size)) {
        write(at, tag, message);
      } else {
        if (framed.size == 0) framed = frame(tag, message);
        give(*group, {framed, {}});
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

// How a message goes to a group.
Publisher::DeliveryMode Publisher::delivery_mode(const Group& group, std::size_t size,
                                                 bool by_view) {
  const std::size_t with_tag = size + tag_size;
  if (with_tag > group.message_max) return DeliveryMode::none;
  if (group.mode == Mode::low_latency)
    return with_tag > group.page_max ? DeliveryMode::none : DeliveryMode::alone;
  return by_view || with_tag > group.page.payload_max() ? DeliveryMode::large
                                                        : DeliveryMode::gathered;
}

// So that the message can be given to the group. False: wait for one of its members.
bool Publisher::prepare(Group& group, std::size_t size, bool by_view) {
  switch (delivery_mode(group, size, by_view)) {
  case DeliveryMode::none: return true;
  case DeliveryMode::alone:
  case DeliveryMode::large: return deliver_or_drop(group);
  case DeliveryMode::gathered: return make_room(group, size + tag_size);
  }
  return false;
}

net::SendOutcome Publisher::refuse() {
  wants_writable_ = true;
  progress_ = false;
  context_.at_turn_end(*this);
  return net::SendOutcome::backpressure;
}

// A page with room for a frame of that size; or none, where the pool is empty. Waiting for one
// could take for ever: there may be more groups than pages, or all pages with one who does not
// read. So the message goes alone then, and the queues of the subscribers bound what there is.
bool Publisher::make_room(Group& group, std::size_t size) {
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
bool Publisher::deliver_or_drop(Group& group) {
  bool waits = false;
  for (Member* const member : group.members) {
    if (has_room(*member)) {
      if (!deliver(*member)) member->put(group.rest_for(*member));
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
bool Publisher::has_room(const Member& member) const {
  return member.disconnecting || member.outbox_bytes <= options_.send_queue_bytes / 2;
}

// What waits for it is cut with it, and the message that is being published.
void Publisher::schedule_disconnect(Member& member, const Group& group) {
  if (std::exchange(member.disconnecting, true)) return;
  to_disconnect_.push_back(member.id);
  std::uint64_t cut = group.messages - member.seen + 1;
  for (const Parcel& parcel : member.outbox) cut += parcel.messages;
  count_skipped(member, cut);
}

void Publisher::count_skipped(Member& member, std::uint64_t messages) {
  member.skipped += messages;
  counters_.skipped += messages;
}

// Not one of the group's messages: what its members have seen of those stays true.
void Publisher::skip(Group& group) {
  for (Member* const member : group.members) count_skipped(*member, 1);
}

void Publisher::write(std::byte* at, Tag tag, std::span<const std::byte> message) {
  std::memcpy(at, &tag, tag_size);
  memory::copy(at + tag_size, message);
}

memory::View Publisher::tagged(Tag tag, std::span<const std::byte> message) {
  const std::size_t size = message.size() + tag_size;
  if (size <= filler_.pool().page_size()) {
    auto [page, offset] = filler_.reserve(static_cast<std::uint32_t>(size));
    if (page) {
      write(page.data() + offset, tag, message);
      memory::View view = page.freeze(offset, static_cast<std::uint32_t>(size));
      filler_.give_back(std::move(page), offset + view.size);
      return view;
    }
  }
  std::byte* at = nullptr;
  memory::View view = memory::HeapPage::make(static_cast<std::uint32_t>(size), at);
  write(at, tag, message);
  return view;
}

memory::View Publisher::frame(Tag tag, std::span<const std::byte> message) {
  const FrameHeader header{0, 0, static_cast<std::uint32_t>(message.size()) + tag_size};
  std::byte* at = nullptr;
  memory::View view = memory::HeapPage::make(header.size + sizeof header, at);
  std::memcpy(at, &header, sizeof header);
  write(at + sizeof header, tag, message);
  return view;
}

// To each member as a transport message of its own.
void Publisher::give(Group& group, Parcel parcel) {
  parcel.messages = 1;
  for (Member* const member : group.members) {
    member->seen = group.messages + 1;
    if (hand_over(*member, parcel)) continue;
    if (options_.slow == SlowSubscriber::sample && !has_room(*member)) {
      count_skipped(*member, 1);
    } else {
      member->put(parcel);
    }
  }
}

// Its tag and its bytes are pieces of one message: so the bytes need no copy.
void Publisher::give_large(Group& group, Tag tag, const memory::View& message) {
  for (Member* const member : group.members) {
    member->skipping =
        options_.slow == SlowSubscriber::sample && (member->blocked || !member->outbox.empty());
    if (member->skipping) count_skipped(*member, 1);
  }
  const std::uint32_t piece_max = group.page_max - large_prefix_size;
  for (std::uint32_t at = 0; at < message.size;) {
    const std::uint32_t size = std::min(piece_max, message.size - at);
    const bool last = at + size == message.size;
    const FrameHeader header{0, piece_flags(false, last), size};
    const Parcel parcel{.page = prefix_for(group, at == 0 ? &tag : nullptr, header),
                        .payload = message.part(at, size),
                        .messages = last ? 1U : 0U};
    for (Member* const member : group.members) {
      if (!member->skipping && !hand_over(*member, parcel)) member->put(parcel);
      member->offset = group.page.end();
      member->seen = group.messages + 1;
    }
    at += size;
  }
  group.page.suspend();
  watch(group);
}

// What comes before a piece: its header, and the tag as a piece of its own before the first. In the
// group's page, or on the heap where the pool is empty.
memory::View Publisher::prefix_for(Group& group, const Tag* tag, const FrameHeader& header) {
  GatheringPage& page = group.page;
  if (page.has_page() && !page.fits(large_prefix_size)) group.release_page();
  if (page.open()) {
    const std::uint32_t start = page.end();
    if (tag != nullptr) write(page.append(tag_size, 0, FrameHeader::goes_on), *tag, {});
    const bool fitted = page.append_header(header.size, header.flags);
    FANIN_ASSERT(fitted);
    return page.from(start);
  }
  const struct {
    FrameHeader of_tag;
    Tag tag;
    FrameHeader header;
  } prefix{{0, FrameHeader::goes_on, tag_size}, tag == nullptr ? 0 : *tag, header};
  static_assert(sizeof prefix == large_prefix_size);
  const auto bytes = std::as_bytes(std::span{&prefix, 1});
  return memory::HeapPage::copy(tag == nullptr ? bytes.last(sizeof header) : bytes);
}

// --- to one subscriber ---

// What was gathered for its group and it has not. False: it does not take it now.
bool Publisher::deliver(Member& member) {
  Group& group = *member.group;
  if (member.offset == group.page.end()) return true;
  if (!hand_over(member, {group.page.from(member.offset), {}})) return false;
  member.offset = group.page.end();
  member.seen = group.messages;
  return true;
}

bool Publisher::hand_over(Member& member, const Parcel& parcel) {
  if (member.disconnecting) return true;
  return !member.blocked && member.outbox.empty() && transmit(member, parcel);
}

bool Publisher::transmit(Member& member, const Parcel& parcel) {
  const std::array extents{parcel.page, parcel.payload};
  const auto count = parcel.payload.size == 0 ? 1U : 2U;
  switch (member.link.send(std::span(extents).first(count))) {
  case net::SendOutcome::accepted: ++counters_.pages; return true;
  case net::SendOutcome::backpressure: member.blocked = true; return false;
  case net::SendOutcome::too_large:
  case net::SendOutcome::closed: return true; // its end is on the way
  }
  return false;
}

void Publisher::empty_outbox(Member& member) {
  while (!member.blocked && !member.outbox.empty() && transmit(member, member.outbox.front()))
    member.pop();
}

void Publisher::disconnect_scheduled() {
  while (!to_disconnect_.empty()) {
    const auto peer = acceptor_.find(to_disconnect_.back());
    to_disconnect_.pop_back();
    if (peer == nullptr) continue;
    acceptor_.close(*peer, CloseReason::too_slow);
    on_closed(peer, CloseReason::too_slow);
  }
}

// --- the turn's end ---

void Publisher::watch(Group& group) {
  group.listed = true;
  if (!deadline_.active() && options_.flush.deadline != FlushPolicy::never_flush)
    deadline_.start(context_.loop(), context_.loop().now() + options_.flush.deadline);
  context_.at_turn_end(*this);
}

void Publisher::flush() {
  for (const auto& group : table_.groups()) {
    if (!group->page.has_page()) continue;
    flush(*group);
    group->listed = true;
    context_.at_turn_end(*this);
  }
}

void Publisher::flush(Group& group) {
  for (Member* const member : group.members) (void)deliver(*member);
  group.page.suspend();
}

// True if it did something.
bool Publisher::look_after(Group& group) {
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

TurnEndTask::Answer Publisher::at_turn_end() {
  Answer answer;
  change_subscriptions();
  for (const auto& group : table_.groups()) {
    if (!group->listed) continue;
    answer.worked |= look_after(*group);
    answer.stay |= group->listed;
  }
  if (wants_writable_ && progress_) {
    wants_writable_ = false;
    if (options_.on_writable) options_.on_writable();
  }
  answer.stay |= wants_writable_ || !asking_.empty();
  for (const auto& group : table_.groups()) answer.stay |= group->listed; // filled by the callback
  return answer;
}

// --- subscribers ---

std::shared_ptr<detail::Peer> Publisher::admit(const Hello& hello) {
  if (closing_) return nullptr;
  for (const Mode mode : {Mode::low_latency, Mode::high_throughput}) {
    if (hello.kind != subscription_kind(mode)) continue;
    auto member = std::make_shared<Member>();
    member->mode = mode;
    return member;
  }
  return nullptr;
}

void Publisher::on_admitted(const std::shared_ptr<detail::Peer>& peer) {
  if (options_.on_subscriber) options_.on_subscriber(peer->id);
}

// A change costs as much as all tags that the member has: so there is one a turn, or where more is
// asked for than a member can have, whatever the requests look like.
void Publisher::on_message(const std::shared_ptr<detail::Peer>& peer, net::Event& event) {
  auto& member = static_cast<Member&>(*peer);
  const bool first = member.asked.empty();
  if (event.rest.size > 0 || !read_request(member, event.message.bytes())) {
    acceptor_.close(member, CloseReason::bad_page);
    on_closed(peer, CloseReason::bad_page);
  } else if (member.asked.size() > options_.tags_max) {
    change_subscriptions(peer);
  } else if (first && !member.asked.empty()) {
    asking_.push_back(member.id);
    context_.at_turn_end(*this);
  }
}

// False: it is invalid.
bool Publisher::read_request(Member& member, std::span<const std::byte> page) {
  PageReader reader{page};
  Frame frame;
  PageReader::Step step{};
  while ((step = reader.next(frame)) == PageReader::Step::frame) {
    const auto request = static_cast<SubscriptionRequest>(frame.header.type);
    const bool subscribe = request == SubscriptionRequest::subscribe;
    if (!subscribe && request != SubscriptionRequest::unsubscribe) return false;
    if (frame.header.flags != 0 || frame.header.size % tag_size != 0) return false;
    for (std::uint32_t at = 0; at < frame.header.size; at += tag_size) {
      Tag tag = 0;
      std::memcpy(&tag, page.data() + frame.offset + at, tag_size);
      member.ask(tag, subscribe);
    }
  }
  return step == PageReader::Step::end;
}

void Publisher::change_subscriptions() {
  for (const PeerId id : std::exchange(asking_, {})) {
    if (const auto peer = acceptor_.find(id)) change_subscriptions(peer);
  }
}

void Publisher::change_subscriptions(const std::shared_ptr<detail::Peer>& peer) {
  auto& member = static_cast<Member&>(*peer);
  tags_ -= member.tags.size();
  member.take_wishes();
  tags_ += member.tags.size();
  if (member.tags.size() > options_.tags_max) {
    acceptor_.close(member, CloseReason::bad_page);
    return on_closed(peer, CloseReason::bad_page);
  }
  table_.place(member);
  empty_outbox(member);
  bound_tags();
}

// A few with many must not keep out many with few.
void Publisher::bound_tags() {
  while (tags_ > options_.tags_sum_max) {
    const Member* greatest = nullptr;
    for (const auto& group : table_.groups()) {
      for (const Member* const member : group->members) {
        if (greatest == nullptr || member->tags.size() > greatest->tags.size()) greatest = member;
      }
    }
    const auto peer = greatest == nullptr ? nullptr : acceptor_.find(greatest->id);
    if (peer == nullptr) return;
    acceptor_.close(*peer, CloseReason::bad_page);
    on_closed(peer, CloseReason::bad_page);
  }
}

void Publisher::on_writable(detail::Peer& peer) {
  auto& member = static_cast<Member&>(peer);
  member.blocked = false;
  empty_outbox(member);
  if (member.group != nullptr) {
    (void)deliver(member);
    if (member.group->page.has_page()) member.group->listed = true;
  }
  made_progress();
}

void Publisher::on_closed(const std::shared_ptr<detail::Peer>& peer, CloseReason reason) {
  table_.remove(static_cast<Member&>(*peer));
  tags_ -= static_cast<const Member&>(*peer).tags.size();
  if (options_.on_subscriber_gone) options_.on_subscriber_gone(peer->id, reason);
  made_progress();
}

void Publisher::made_progress() {
  progress_ = true;
  context_.at_turn_end(*this);
  if (closing_ && !closed_) finish_closing();
}

std::string Publisher::peer_name(PeerId id) const {
  const auto peer = acceptor_.find(id);
  return peer == nullptr ? "" : peer->name;
}

std::uint64_t Publisher::skipped(PeerId id) const {
  const auto peer = acceptor_.find(id);
  return peer == nullptr ? 0 : static_cast<const Member&>(*peer).skipped;
}

void Publisher::close() {
  if (std::exchange(closing_, true)) return;
  context_.closing(+1);
  if (options_.slow != SlowSubscriber::block)
    linger_.start(context_.loop(), context_.loop().now() + linger_timeout);
  flush();
  finish_closing();
}

void Publisher::finish_closing() {
  const auto& groups = table_.groups();
  const bool all = std::all_of(groups.begin(), groups.end(), [](const auto& group) {
    return group->delivered() &&
           std::all_of(group->members.begin(), group->members.end(),
                       [](const Member* member) { return member->outbox.empty(); });
  });
  if (all) end_closing();
}

void Publisher::end_closing() {
  linger_.cancel();
  closed_ = true;
  table_.clear();
  acceptor_.close();
  context_.closing(-1);
}

} // namespace fanin::message
