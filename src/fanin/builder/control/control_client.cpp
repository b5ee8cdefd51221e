#include "fanin/builder/control/control_client.hpp"

#include <algorithm>
#include <utility>

namespace fanin::builder {

namespace {
constexpr Duration retry_first = std::chrono::milliseconds{10};
constexpr Duration retry_longest = std::chrono::milliseconds{500};
constexpr Duration silence_tick = std::chrono::seconds{5};
constexpr Duration silence_longest = std::chrono::minutes{1}; // its launcher waits as long,
constexpr Duration silence_more = std::chrono::seconds{10}; // and kills it before
} // namespace

ControlClient::ControlClient(NodeEnvironment environment, Options options)
    : environment_(std::move(environment)),
      options_(std::move(options)),
      channel_(*environment_.control_pool),
      retry_([this] { connect(); }),
      grace_([this] { end_conversation(); }),
      silence_tick_([this] { watch_silence(); }) {
  options_.hello.session = environment_.session;
  options_.hello.text_size = static_cast<std::uint32_t>(options_.text.size());
}

ControlClient::~ControlClient() { link_.close(true); }

void ControlClient::start() { connect(); }

void ControlClient::stop() {
  stopped_ = true;
  retry_.cancel();
  grace_.cancel();
  silence_tick_.cancel();
  channel_.flush();
  channel_ = {};
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
  if (!id && was_connected_) return lost(id.error().text); // it was possible: try again
  if (!id) {
    options_.on_given_up(id.error());
    return;
  }
  link_ = {*transport, *id};
}

// What is known of the event manager is still true for a while, and what was said is kept.
void ControlClient::lost(std::string_view why) {
  const bool was = connected_;
  channel_.detach();
  link_ = {};
  connected_ = false;
  if (stopped_) return;
  const Time now = environment_.loop->now();
  const bool first = was && lost_at_ == never;
  const bool was_welcome = std::exchange(welcome_, false);
  if (first) lost_at_ = now;
  if (first || was_welcome) { // what comes and goes without a welcome is logged once
    environment_.log(LogLevel::warning, fmt::format("lost the event manager at {}: {}",
                                                    options_.event_manager.text(), why));
  }
  if (was) {
    if (options_.grace <= Duration{0} || incarnation_ == 0) {
      end_conversation();
    } else if (!grace_.active()) {
      grace_.start(*environment_.loop, now + options_.grace);
    }
    if (stopped_) return;
  }
  if (was_connected_ && now - lost_at_ >= options_.give_up_after) {
    stopped_ = true;
    options_.on_given_up(
        Error{ErrorKind::disconnected, fmt::format("the event manager at {} does not come back: {}",
                                                   options_.event_manager.text(), why)});
    return;
  }
  try_again();
}

void ControlClient::try_again() {
  retry_.start(*environment_.loop, environment_.loop->now() + retry_after_);
  retry_after_ = std::min(retry_after_ * 2, retry_longest);
}

void ControlClient::end_conversation() {
  incarnation_ = 0;
  channel_ = ControlChannel{*environment_.control_pool};
  options_.on_lost();
}

void ControlClient::say_hello() {
  wire::Hello hello = options_.hello;
  hello.resumes = incarnation_;
  hello.received = channel_.received();
  channel_.greet(link_, hello, std::string_view{options_.text});
}

void ControlClient::welcomed() {
  grace_.cancel();
  refused_since_ = lost_at_ = never;
  retry_after_ = retry_first;
  welcome_ = true;
  if (!silence_tick_.active())
    silence_tick_.start(*environment_.loop, environment_.loop->now() + silence_tick);
}

// A frozen event manager keeps its connections. Ticks are counted, not time: this process may have
// been frozen itself.
void ControlClient::watch_silence() {
  if (stopped_) return;
  silence_tick_.start(*environment_.loop, environment_.loop->now() + silence_tick);
  const bool waits = connected_ && (!welcome_ || !channel_.all_acknowledged());
  silent_ticks_ = waits ? silent_ticks_ + 1 : 0;
  const Duration longest = std::max(silence_longest, options_.give_up_after) + silence_more;
  if (silent_ticks_ * silence_tick < longest) return;
  silent_ticks_ = 0;
  link_.close(true);
  lost("it is silent");
}

bool ControlClient::on_message(wire::MessageType type, std::span<const std::byte> body) {
  wire::MessageReader reader{body};
  switch (type) {
  case wire::MessageType::refuse: {
    wire::Refuse refuse;
    if (!reader.read(refuse)) return false;
    const std::string reason{reader.text(refuse.text_size)};
    if (!reader.ok()) return false;
    refused(reason, refuse.for_now != 0);
    return true;
  }
  case wire::MessageType::resumed: {
    wire::Resumed resumed;
    if (incarnation_ == 0 || !reader.read(resumed)) return false;
    welcomed();
    return channel_.resume(link_, resumed.received);
  }
  case wire::MessageType::welcome: {
    wire::Welcome welcome;
    if (!reader.read(welcome)) return false;
    welcomed();
    incarnation_ = welcome.incarnation;
    channel_.begin(link_);
    return options_.on_message(type, body);
  }
  default: return options_.on_message(type, body);
  }
}

void ControlClient::receive(const memory::View& page) {
  channel_.begin_page();
  silent_ticks_ = 0;
  const net::Link from = link_;
  const bool good =
      for_each_message(page.bytes(), [&](wire::MessageType type, std::span<const std::byte> body) {
        if (link_ != from) return true; // it has ended meanwhile
        switch (channel_.take(type, body)) {
        case ControlChannel::Taken::done: return true;
        case ControlChannel::Taken::bad: return false;
        case ControlChannel::Taken::message: break;
        }
        return on_message(type, body);
      });
  if (!good && link_) {
    link_.close(true);
    lost("it sent an invalid message");
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
  channel_.detach();
  connected_ = false;
  retry_.start(*environment_.loop, now + retry_longest);
}

void ControlClient::on_event(net::Transport& transport, net::Event& event) {
  if (link_ != net::Link{&transport, event.connection}) return; // of an earlier connection
  switch (event.kind) {
  case net::EventKind::connected:
    connected_ = was_connected_ = true;
    say_hello();
    break;
  case net::EventKind::message: receive(event.message); break;
  case net::EventKind::writable: channel_.flush(); break;
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
    if (event.reason == net::CloseReason::unknown_host && !was_connected_) {
      stopped_ = true;
      link_ = {};
      options_.on_given_up(
          Error{ErrorKind::not_found,
                fmt::format("{}: there is no host of that name", options_.event_manager.text())});
      return;
    }
    lost(net::name(event.reason));
    break;
  case net::EventKind::accepted: break;
  }
}

void ControlClient::flush() {
  if (stopped_) return;
  channel_.flush();
  if (connected_ && channel_.failed()) {
    link_.close(true);
    lost("it does not read");
  }
}

} // namespace fanin::builder
