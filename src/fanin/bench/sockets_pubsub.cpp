// fanin's publisher and its subscribers, in high-throughput mode.

#include "fanin/base/try.hpp"
#include "fanin/bench/sockets_process.hpp"

namespace fanin::bench {
namespace {

constexpr message::Tag tag = 1;

class PublisherRole final : public Role {
public:
  static MadeRole make(message::Context& context, const Spec& spec, net::Url& url) {
    std::unique_ptr<PublisherRole> role{new PublisherRole{context, spec}};
    PublisherRole& self = *role;
    self.socket_ = FANIN_TRY(message::Publisher::listen(
        context, url,
        {.slow = message::SlowSubscriber::block,
         .on_subscriber = [&self, expected = spec.receivers](auto) { self.count(expected); },
         .on_subscriber_gone = [&context](auto, auto) { context.stop(); },
         .on_writable = [&self] { self.feeder_.open(); }}));
    url = self.socket_->url();
    return role;
  }

  net::SendOutcome offer() { return socket_->publish(tag, source_.bytes()); }

private:
  PublisherRole(message::Context& context, const Spec& spec)
      : source_(spec.size), feeder_(context, spec.size, *this) {}
  void count(std::size_t expected) {
    if (++subscribers_ == expected) feeder_.open();
  }

  PayloadSource source_;
  Feeder<PublisherRole> feeder_;
  std::size_t subscribers_ = 0;
  std::unique_ptr<message::Publisher> socket_;
};

class SubscriberRole final : public Role {
public:
  static MadeRole make(message::Context& context, const Spec& spec, const net::Url& url,
                       ProcessStats& stats) {
    std::unique_ptr<SubscriberRole> role{new SubscriberRole};
    SubscriberRole& self = *role;
    self.socket_ = message::Subscriber::make(
        context, message::SubscriberOptions{
                     .message_max = bench::message_size_max,
                     .on_ready =
                         [&self, &stats, read = spec.read] {
                           take_all(*self.socket_, self.message_, stats,
                                    [read](message::Message& one) { return touched(one, read); });
                         },
                     .on_disconnected = [&context](auto, auto) { context.stop(); }});
    FANIN_TRY(self.socket_->subscribe(url, tag, message::Mode::high_throughput));
    return role;
  }

private:
  message::Message message_;
  std::unique_ptr<message::Subscriber> socket_;
};

} // namespace

Roles pubsub_roles(const Spec& spec) {
  Roles roles;
  roles.connectors = spec.receivers;
  roles.connectors_count = true;
  roles.message = spec.size;
  roles.listen = [spec](message::Context& context, std::size_t, net::Url& url, ProcessStats&) {
    return PublisherRole::make(context, spec, url);
  };
  roles.connect = [spec](message::Context& context, std::size_t, const std::vector<net::Url>& urls,
                         ProcessStats& stats) {
    return SubscriberRole::make(context, spec, urls.front(), stats);
  };
  return roles;
}

} // namespace fanin::bench
