#include "fanin/builder/control_client.hpp"

#include <algorithm>

namespace fanin::builder {

namespace {
constexpr Duration retry_first = std::chrono::milliseconds{10};
constexpr Duration retry_longest = std::chrono::milliseconds{500};
} // namespace

ControlClient::ControlClient(NodeEnvironment environment, Options options)
    : environment_(std::move(environment)),
      options_(std::move(options)),
      retry_([this] { connect(); }) {}

ControlClient::~ControlClient() { link_.close(true); }

void ControlClient::start() { connect(); }

void ControlClient::stop() {
  stopped_ = true;
  retry_.cancel();
  gather_.flush();
  gather_ = {};
  link_.close();
  connected_ = false;
}

void ControlClient::connect() {
  const auto transport = environment_.transports->find(options_.event_manager);
  if (!transport) {
    options_.on_given_up(transport.error());
    return;
  }
  const auto id =
      (*transport)
          ->connect(options_.event_manager,
                    {.receive_pool = environment_.control_pool,
                     .handler = this,
                     .send_queue_bytes = control_queue_bytes(*environment_.control_pool),
                     .low_latency = true});
  if (!id) {
    options_.on_given_up(id.error());
    return;
  }
  link_ = {*transport, *id};
}

void ControlClient::lost(std::string_view why) {
  const bool was = connected_;
  gather_ = {};
  link_ = {};
  connected_ = false;
  if (stopped_) return;
  const Time now = environment_.loop->now();
  if (was) {
    lost_at_ = now;
    retry_after_ = retry_first;
    environment_.log(LogLevel::warning, fmt::format("lost the event manager at {}: {}",
                                                    options_.event_manager.text(), why));
    options_.on_lost();
    if (stopped_) return;
  } else if (was_connected_ && now - lost_at_ >= options_.give_up_after) {
    stopped_ = true;
    options_.on_given_up(
        Error{ErrorKind::disconnected, fmt::format("the event manager at {} does not come back: {}",
                                                   options_.event_manager.text(), why)});
    return;
  }
  retry_.start(*environment_.loop, now + retry_after_);
  retry_after_ = std::min(retry_after_ * 2, retry_longest);
}

void ControlClient::receive(const memory::View& page) {
  const bool good = for_each_message(
      page.bytes(), [this](wire::MessageType type, std::span<const std::byte> body) {
        if (type != wire::MessageType::refuse) {
          refused_since_ = never;
          return options_.on_message(type, body);
        }
        wire::MessageReader reader{body};
        wire::Refuse refuse;
        if (!reader.read(refuse)) return false;
        const std::string reason{reader.text(refuse.text_size)};
        if (!reader.ok()) return false;
        refused(reason, refuse.for_now != 0);
        return true;
      });
  if (!good && link_) {
    link_.close(true);
    lost("it sent a message that makes no sense");
  }
}

void ControlClient::refused(const std::string& reason, bool for_now) {
  const Time now = environment_.loop->now();
  if (refused_since_ == never) refused_since_ = now;
  if (!for_now || now - refused_since_ >= options_.give_up_after) {
    stop();
    options_.on_given_up(Error{ErrorKind::refused, reason});
    return;
  }
  if (refused_since_ == now) environment_.log(LogLevel::warning, reason + "; trying again");
  link_.close();
  gather_ = {};
  connected_ = false;
  retry_.start(*environment_.loop, now + retry_longest);
}

void ControlClient::on_event(net::Transport& transport, net::Event& event) {
  if (link_ != net::Link{&transport, event.connection}) return; // of an earlier connection
  switch (event.kind) {
  case net::EventKind::connected:
    connected_ = was_connected_ = true;
    retry_after_ = retry_first;
    gather_ = Gather{link_, *environment_.control_pool};
    options_.hello.text_size = static_cast<std::uint32_t>(options_.text.size());
    gather_.append(options_.hello, std::string_view{options_.text});
    break;
  case net::EventKind::message: receive(event.message); break;
  case net::EventKind::writable: gather_.flush(); break;
  case net::EventKind::closed:
    if (event.reason == net::CloseReason::version_mismatch) {
      stopped_ = true;
      link_ = {};
      options_.on_given_up(Error{ErrorKind::refused,
                                 fmt::format("{} speaks another version of the protocol: run the "
                                             "same release of fanin on all nodes",
                                             options_.event_manager.text())});
      return;
    }
    lost(net::name(event.reason));
    break;
  case net::EventKind::accepted: break;
  }
}

void ControlClient::flush() {
  if (!connected_) return;
  gather_.flush();
  if (gather_.failed()) {
    link_.close(true);
    lost("it does not read");
  }
}

} // namespace fanin::builder
