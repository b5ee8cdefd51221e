// fanin's low-latency sockets, there and back over one connection. The first answer says where a
// stream can go that fills the same path, through high-throughput sockets in the same two loops.
#include <optional>
#include <string>
#include <utility>

#include "fanin/base/try.hpp"
#include "fanin/bench/roundtrip.hpp"
#include "fanin/bench/sockets_process.hpp"

namespace fanin::bench {
namespace {

constexpr std::uint32_t load_size = 16U << 10; // of the stream's messages, as many as go

std::string text_of(message::Message& message) {
  const auto bytes = message.bytes();
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span{text});
}

// Answers each message with one of its own.
class Answerer final : public Role {
public:
  static MadeRole make(message::Context& context, const Spec& spec, net::Url& url) {
    std::unique_ptr<Answerer> role{new Answerer{context, spec}};
    Answerer& self = *role;
    self.receiver_ = FANIN_TRY(message::LowLatencyReceiver::listen(
        context, url,
        {.on_message = [&self](message::Message& message) { self.on_message(message); },
         .on_connected = {},
         .on_disconnected = [&context](auto, auto) { context.stop(); },
         .on_writable = [&self](auto) { self.answer(); }}));
    url = self.receiver_->url();
    if (!spec.loaded) return role;
    net::Url load_url = url;
    load_url.port = 0;
    if (url.scheme != "tcp") load_url.host.clear();
    if (url.scheme == "inproc") load_url.host = "load";
    self.load_ = FANIN_TRY(message::HighThroughputReceiver::listen(
        context, load_url, {.on_ready = [&self] { self.read_load(); }}));
    return role;
  }

private:
  Answerer(message::Context& context, const Spec& spec) : context_(context), source_(spec.size) {}

  void on_message(message::Message& message) {
    if (std::exchange(asker_, message.peer()) == message::PeerId::none) return introduce();
    touch(message.bytes(), false);
    ++owed_;
    answer();
  }

  void introduce() {
    const std::string text = load_ == nullptr ? "-" : load_->url().text();
    if (receiver_->answer(asker_, bytes_of(text)) != net::SendOutcome::accepted) context_.stop();
  }

  void answer() {
    while (owed_ > 0 && receiver_->answer(asker_, source_.bytes()) == net::SendOutcome::accepted)
      --owed_;
  }

  void read_load() {
    while (load_->recv(loaded_)) touch(loaded_.piece(0).bytes(), false);
    loaded_ = {};
  }

  message::Context& context_;
  PayloadSource source_;
  message::PeerId asker_ = message::PeerId::none;
  std::size_t owed_ = 0; // answers that the network has not taken yet
  message::Message loaded_;
  std::unique_ptr<message::LowLatencyReceiver> receiver_;
  std::unique_ptr<message::HighThroughputReceiver> load_;
};

class Asker final : public Role, net::Service {
public:
  static MadeRole make(message::Context& context, const Spec& spec, const net::Url& url,
                       ProcessStats& stats) {
    std::unique_ptr<Asker> role{new Asker{context, spec, stats}};
    Asker& self = *role;
    self.sender_ = FANIN_TRY(message::LowLatencySender::connect(
        context, url,
        {.on_connected =
             [&self, &context] {
               if (self.sender_->send(bytes_of("-")) != net::SendOutcome::accepted) context.stop();
             },
         .on_disconnected = [&context](auto) { context.stop(); },
         .on_writable = [&self] { self.ask(); },
         .on_answer = [&self](message::Message& message) { self.on_answer(message); }}));
    context.loop().add(self);
    return role;
  }

  bool poll() override {
    if (!trips_ || !trips_->may_send(clock_.now())) return false;
    return ask();
  }

  // Of the load.
  net::SendOutcome offer() {
    const auto outcome = load_->send(load_source_.bytes());
    if (outcome == net::SendOutcome::accepted) stats_.load_bytes.add(load_size);
    return outcome;
  }

private:
  Asker(message::Context& context, const Spec& spec, ProcessStats& stats)
      : context_(context),
        spec_(spec),
        stats_(stats),
        source_(spec.size),
        load_source_(load_size),
        feeder_(context, load_size, *this),
        timer_([this] { ask(); }) {}

  void on_answer(message::Message& message) {
    if (!trips_) return begin(text_of(message));
    touch(message.bytes(), false);
    trips_->received(clock_.now());
    ask();
  }

  void begin(const std::string& load_url) {
    trips_.emplace(spec_, stats_, clock_.now());
    if (const auto url = net::Url::parse(load_url); url && spec_.loaded) {
      net::Url to = *url;
      to.options = spec_.url.options;
      auto load = message::HighThroughputSender::connect(
          context_, to,
          {.on_connected = [this] { feeder_.open(); }, .on_writable = [this] { feeder_.open(); }});
      if (!load) return context_.stop();
      load_ = std::move(*load);
    }
    ask();
  }

  bool ask() {
    bool any = false;
    Time now = clock_.now();
    while (trips_->may_send(now) && sender_->send(source_.bytes()) == net::SendOutcome::accepted) {
      trips_->sent(now);
      any = true;
    }
    if (spec_.period.count() > 0 && trips_->next_send() != never)
      timer_.start(context_.loop(), trips_->next_send());
    return any;
  }

  message::Context& context_;
  Spec spec_;
  ProcessStats& stats_;
  MonotonicClock clock_;
  PayloadSource source_;
  PayloadSource load_source_;
  Feeder<Asker> feeder_;
  net::Timer timer_;
  std::optional<Trips> trips_; // from the first answer on
  std::unique_ptr<message::LowLatencySender> sender_;
  std::unique_ptr<message::HighThroughputSender> load_;
};

} // namespace

Roles roundtrip_roles(const Spec& spec) {
  Roles roles;
  roles.connectors_count = true;
  roles.latency = true;
  roles.message = spec.size;
  roles.one_page = true;
  roles.listen = [spec](message::Context& context, std::size_t, net::Url& url, ProcessStats&) {
    return Answerer::make(context, spec, url);
  };
  roles.connect = [spec](message::Context& context, std::size_t, const std::vector<net::Url>& urls,
                         ProcessStats& stats) {
    return Asker::make(context, spec, urls.front(), stats);
  };
  return roles;
}

} // namespace fanin::bench
