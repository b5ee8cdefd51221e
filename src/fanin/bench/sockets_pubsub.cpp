// fanin's publisher and its subscribers, in high-throughput mode.
#include <utility>

#include "fanin/bench/sockets_process.hpp"

namespace fanin::bench {
namespace {

constexpr message::Tag tag = 1;

class PublisherPart final : public Part {
public:
  static MadePart make(message::Context& context, const Spec& spec, net::Url& url) {
    std::unique_ptr<PublisherPart> part{new PublisherPart{context, spec}};
    PublisherPart& self = *part;
    auto socket = message::Publisher::listen(
        context, url,
        {.slow = message::SlowSubscriber::block,
         .on_subscriber = [&self, expected = spec.receivers](auto) { self.count(expected); },
         .on_subscriber_gone = [&context](auto, auto) { context.stop(); },
         .on_writable = [&self] { self.feeder_.open(); }});
    if (!socket) return std::unexpected(socket.error());
    self.socket_ = std::move(*socket);
    url = self.socket_->url();
    return part;
  }

private:
  struct Offer {
    PublisherPart& part;
    net::SendOutcome operator()() const { return part.socket_->publish(tag, part.source_.bytes()); }
  };
  PublisherPart(message::Context& context, const Spec& spec)
      : source_(spec.size), feeder_(context, spec.size, Offer{*this}) {}
  void count(std::size_t expected) {
    if (++subscribers_ == expected) feeder_.open();
  }

  PayloadSource source_;
  Feeder<Offer> feeder_;
  std::size_t subscribers_ = 0;
  std::unique_ptr<message::Publisher> socket_;
};

class SubscriberPart final : public Part {
public:
  static MadePart make(message::Context& context, const Spec& spec, const net::Url& url,
                       ProcessStats& stats) {
    std::unique_ptr<SubscriberPart> part{new SubscriberPart};
    SubscriberPart& self = *part;
    self.socket_ = std::make_unique<message::Subscriber>(
        context,
        message::SubscriberOptions{
            .message_max = bench::message_size_max,
            .on_ready = [&self, &stats,
                         read = spec.read] { take_all(*self.socket_, self.message_, read, stats); },
            .on_disconnected = [&context](auto, auto) { context.stop(); }});
    const auto subscribed = self.socket_->subscribe(url, tag, message::Mode::high_throughput);
    if (!subscribed) return std::unexpected(subscribed.error());
    return part;
  }

private:
  message::Message message_;
  std::unique_ptr<message::Subscriber> socket_;
};

} // namespace

Parts pubsub_parts(const Spec& spec) {
  Parts parts;
  parts.connectors = spec.receivers;
  parts.connectors_count = true;
  parts.message = spec.size;
  parts.listen = [spec](message::Context& context, std::size_t, net::Url& url, ProcessStats&) {
    return PublisherPart::make(context, spec, url);
  };
  parts.connect = [spec](message::Context& context, std::size_t, const std::vector<net::Url>& urls,
                         ProcessStats& stats) {
    return SubscriberPart::make(context, spec, urls.front(), stats);
  };
  return parts;
}

} // namespace fanin::bench
