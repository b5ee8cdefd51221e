/// \file
/// The publish socket (Schumacher 2017, table II): "when a message is published under a given tag,
/// the tag is matched against a subscription table and the message is sent to all subscribed remote
/// endpoints via either low-latency or high-throughput send sockets". Subscribers with the same
/// mode and tags share one page: a message is copied once for all of them.
///
/// Thread: the Context's, also for callbacks. Order: as published, within a subscriber's mode.
#pragma once

#include <functional>
#include <limits>
#include <memory>
#include <span>
#include <vector>

#include "fanin/base/export.hpp"
#include "fanin/message/acceptor.hpp"
#include "fanin/message/context.hpp"
#include "fanin/message/counters.hpp"
#include "fanin/message/high_throughput_sender.hpp"
#include "fanin/message/subscription_table.hpp"
#include "fanin/net/page_filler.hpp"

namespace fanin::message {

/// What happens to a subscriber that reads more slowly than messages are published.
enum class SlowSubscriber : std::uint8_t {
  disconnect, ///< the subscriber is disconnected, and may connect again
  block, ///< publish() gives backpressure until the subscriber has read: all wait for the slowest
  sample ///< the subscriber misses whole messages, which are counted
};

struct PublisherOptions {
  SlowSubscriber slow = SlowSubscriber::disconnect;
  FlushPolicy flush = {}; ///< of high-throughput subscriptions
  /// Most bytes of memory that messages waiting for one subscriber may take; with more it is slow.
  std::uint64_t send_queue_bytes = ContextOptions::send_queue;
  /// Most tags of a subscriber in one mode; one that asks for more is disconnected (bad_page).
  std::uint32_t tags_max = 65536;
  /// Most tags of all subscribers; beyond this the subscriber with most tags is disconnected
  /// (bad_page).
  std::uint64_t tags_sum_max = 1U << 20;
  /// Most connections at the same time; a further subscriber is disconnected (too_many).
  std::size_t subscribers_max = std::numeric_limits<std::size_t>::max();
  std::function<void(PeerId)> on_subscriber = {}; ///< a subscriber has connected
  std::function<void(PeerId, CloseReason)> on_subscriber_gone = {};
  std::function<void()> on_writable = {}; ///< after backpressure: try again
};

/// It has slightly more than 400 lines: how a message is given to a group of subscribers, slow ones
/// included, stays together. A subscriber, its group and the table of tags are types of their own
/// (subscription_group.hpp).
class Publisher final : detail::AcceptorOwner, TurnEndTask {
public:
  /// Errors: usage, unsupported (the address), refused (in use).
  [[nodiscard]] FANIN_API static Result<std::unique_ptr<Publisher>>
  listen(Context& context, const net::Url& url, PublisherOptions options = {});
  FANIN_API ~Publisher() override;

  /// Publishes to all subscribers of the tag. If there are none, it is accepted too. Backpressure:
  /// nobody gets it, on_writable follows (SlowSubscriber::block). A subscriber that takes no
  /// messages of that size does not get it, which is counted as skipped and as too large.
  [[nodiscard]] FANIN_API net::SendOutcome publish(Tag tag, std::span<const std::byte> message);
  /// Publishes a message of at least copy_below_bytes without a copy; copies a smaller one.
  [[nodiscard]] FANIN_API net::SendOutcome publish(Tag tag, const memory::View& message);

  FANIN_API void flush(); ///< sends at once what was gathered
  /// Takes no more messages and subscribers. Accepted messages are delivered (Context::drain()) to
  /// subscribers that read. Unless SlowSubscriber::block it ends when none has read so much within
  /// 5 s that more could be sent to it.
  FANIN_API void close();

  /// Listens at one more address, also of another network. Returns it with the port that was
  /// chosen.
  [[nodiscard]] Result<net::Url> also_listen(const net::Url& url) { return acceptor_.listen(url); }
  [[nodiscard]] const net::Url& url() const { return url_; } ///< with the port that was chosen
  /// The number of connections; a subscriber with both modes has two.
  [[nodiscard]] std::size_t subscribers() const { return acceptor_.peers(); }
  [[nodiscard]] bool has_subscriber(Tag tag) { return !table_.find(tag).empty(); }
  [[nodiscard]] FANIN_API std::string peer_name(PeerId peer) const;
  [[nodiscard]] FANIN_API std::uint64_t
  skipped(PeerId subscriber) const; ///< messages that this subscriber did not get
  [[nodiscard]] const SocketCounters& counters() const { return counters_; }

private:
  using Member = detail::Member;
  using Group = detail::Group;

  Publisher(Context& context, PublisherOptions options);
  std::shared_ptr<detail::Peer> admit(const Hello& hello) override;
  void on_admitted(const std::shared_ptr<detail::Peer>& peer) override;
  void on_message(const std::shared_ptr<detail::Peer>& peer, net::Event& event) override;
  void on_writable(detail::Peer& peer) override;
  void on_closed(const std::shared_ptr<detail::Peer>& peer, CloseReason reason) override;
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
  void change_subscriptions(const std::shared_ptr<detail::Peer>& peer);
  void disconnect(const std::shared_ptr<detail::Peer>& peer, CloseReason reason);
  void made_progress();
  void finish_closing();
  void end_closing();
  void expire_closing();

  Context& context_;
  PublisherOptions options_;
  SocketCounters counters_;
  net::Url url_;
  net::PageFiller filler_; // low latency
  detail::SubscriptionTable table_;
  std::vector<PeerId> to_disconnect_;
  std::vector<PeerId> to_change_; // have asked for other tags in this turn
  bool wants_writable_ = false; // the application was told backpressure
  bool progress_ = false; // since then, a subscriber has read or has gone
  bool read_since_linger_ = false; // closing: a subscriber has, since linger_ was started
  bool closing_ = false;
  bool closed_ = false;
  net::Timer deadline_;
  net::Timer linger_; // of close()
  detail::Acceptor acceptor_;
};

} // namespace fanin::message
