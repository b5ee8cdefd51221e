#include "fanin/builder/control/control_client.hpp"

#include <algorithm>
#include <utility>

#include "fanin/base/assert.hpp"
#include "fanin/base/try.hpp"
#include "fanin/base/units.hpp"

namespace fanin::builder {

namespace {
constexpr Duration retry_first = std::chrono::milliseconds{10};
constexpr Duration retry_longest = std::chrono::milliseconds{500};
constexpr Duration frozen_after = std::chrono::minutes{1}; // its launcher waits as long,
constexpr Duration frozen_more = std::chrono::seconds{10}; // and kills it before
constexpr int checks_until_change = 1; // what was under way over the rail in use may still come
} // namespace

ControlClient::ControlClient(NodeEnvironment environment, Options options)
    : environment_(std::move(environment)),
      options_(std::move(options)),
      channel_(*environment_.control_pool),
      rail_silence_(options_.patience),
      silence_(std::max(frozen_after, options_.give_up_after) + frozen_more),
      rail_tick_([this] { watch_rail(); }),
      retry_([this] { connect(); }),
      grace_([this] { end_conversation(); }),
      silence_tick_([this] { watch_silence(); }),
      retry_after_(retry_first) {
  options_.hello.session = environment_.session;
  options_.hello.text_size = static_cast<std::uint32_t>(options_.text.size());
}

ControlClient::~ControlClient() { link_.close(true); }

void ControlClient::start() { connect(); }

void ControlClient::stop() {
  state_ = State::stopped;
  retry_.cancel();
  grace_.cancel();
  silence_tick_.cancel();
  stop_watching();
  channel_.flush();
  channel_ = {};
  link_.close();
}

void ControlClient::give_up(const Error& error) {
  stop();
  options_.on_given_up(error);
}

Result<net::Link> ControlClient::connect_over(const net::Url& rail) {
  const auto transport = FANIN_TRY(environment_.transports->find(rail));
  const auto id = FANIN_TRY(
      transport->connect(rail, {.receive_pool = environment_.control_pool,
                                .handler = this,
                                .send_queue_bytes = control_queue_bytes(*environment_.control_pool),
                                .low_latency = true,
                                .urgent = true}));
  return net::Link{transport, id};
}

void ControlClient::connect() {
  auto link = connect_over(rail());
  // It was possible, or is over another rail: try again.
  if (!link && (was_connected_ || !no_rail_left())) return lost(link.error().text);
  if (!link) return give_up(link.error());
  link_ = *link;
  if (!has_rails()) return;
  rail_silence_.begin(environment_.loop->now());
  rail_tick_.start(*environment_.loop, environment_.loop->now() + rail_silence_.period());
}

// Where there is none at the rail in use. True: at none of them.
bool ControlClient::no_rail_left() { return ++impossible_rails_ >= options_.event_manager.size(); }

// --- rails ---------------------------------------------------------------------------------------

// A network that swallows what is sent tells nobody. But an event manager that stands still answers
// over no rail, and then nothing is changed.
void ControlClient::watch_rail() {
  const bool silent = rail_silence_.check(environment_.loop->now(), state_ == State::welcomed,
                                          channel_.acknowledged(), !waits());
  rail_tick_.start(*environment_.loop, environment_.loop->now() + rail_silence_.period());
  if (!silent) return forget_other();
  ++other_.checks;
  if (!other_.link || (!other_.connected && other_.checks > SilenceWatch::checks)) {
    try_other_rail();
  } else if (other_.connected && other_.checks > checks_until_change) {
    change_rail();
  }
}

void ControlClient::try_other_rail() {
  std::size_t rail = rail_after(other_.rail);
  if (rail == rail_) rail = rail_after(rail);
  forget_other();
  auto link = connect_over(options_.event_manager[rail]);
  other_ = {.link = link ? *link : net::Link{}, .rail = rail};
}

void ControlClient::change_rail() {
  environment_.log(LogLevel::warning,
                   fmt::format("the event manager does not answer over {}: continuing over {}",
                               rail().text(), options_.event_manager[other_.rail].text()));
  channel_.detach();
  link_.close(true);
  link_ = std::exchange(other_.link, {});
  rail_ = other_.rail;
  forget_other();
  was_connected_ = true;
  state_ = State::waits_for_welcome;
  rail_silence_.begin(environment_.loop->now());
  if (options_.grace <= Duration{0} && incarnation_ != 0) end_conversation();
  if (state_ != State::stopped) send_hello();
}

void ControlClient::forget_other() {
  other_.link.close(true);
  other_ = {.rail = rail_};
}

void ControlClient::stop_watching() {
  rail_tick_.cancel();
  forget_other();
}

void ControlClient::on_other(const net::Event& event) {
  if (event.kind == net::EventKind::connected) {
    other_.connected = true;
    other_.checks = 0;
  } else if (event.kind == net::EventKind::closed) {
    other_.link = {}; // the next look tries the next rail
    other_.connected = false;
  }
}

// --- losses --------------------------------------------------------------------------------------

// What is known of the event manager is still true for a while, and what was said is kept.
void ControlClient::lost(std::string_view why) {
  const bool was = connected();
  const bool was_welcome = state_ == State::welcomed;
  channel_.detach();
  link_ = {};
  stop_watching();
  state_ = State::connecting;
  const std::string from = rail().text();
  rail_ = rail_after(rail_);
  const Time now = environment_.loop->now();
  const bool first = was_connected_ && lost_at_ == never;
  if (first) lost_at_ = now;
  if (first || was_welcome) { // what comes and goes without a welcome is logged once
    environment_.log(
        LogLevel::warning,
        fmt::format("lost the event manager at {}: {}{}", from, why,
                    has_rails() ? fmt::format("; trying {} next", rail().text()) : std::string()));
  }
  if (was) {
    if (options_.grace <= Duration{0} || incarnation_ == 0) {
      end_conversation();
    } else if (!grace_.active()) {
      grace_.start(*environment_.loop, now + options_.grace);
    }
    if (state_ == State::stopped) return;
  }
  if (was_connected_ && now - lost_at_ >= options_.give_up_after) {
    return give_up({ErrorKind::disconnected,
                    fmt::format("the event manager at {} does not come back: {}", from, why)});
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

void ControlClient::send_hello() {
  wire::Hello hello = options_.hello;
  hello.resumes = incarnation_;
  hello.received = channel_.received();
  channel_.greet(link_, hello, std::string_view{options_.text});
}

void ControlClient::welcomed() {
  grace_.cancel();
  refused_since_ = lost_at_ = never;
  retry_after_ = retry_first;
  state_ = State::welcomed;
  if (silence_tick_.active()) return;
  const Time now = environment_.loop->now();
  silence_.begin(now);
  silence_tick_.start(*environment_.loop, now + silence_.period());
}

// A frozen event manager keeps its connections, over all rails.
void ControlClient::watch_silence() {
  const Time now = environment_.loop->now();
  const bool silent = silence_.check(now, state_ == State::welcomed, channel_.acknowledged(),
                                     !connected() || !waits());
  silence_tick_.start(*environment_.loop, now + silence_.period());
  if (!silent) return;
  silence_.begin(now);
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
    if (!reader.ok() || refuse.kind > wire::RefusalKind::run_ending) return false;
    refused(reason, refuse.kind);
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

void ControlClient::refused(const std::string& reason, wire::RefusalKind kind) {
  const Time now = environment_.loop->now();
  if (refused_since_ == never) refused_since_ = now;
  const bool for_now = kind == wire::RefusalKind::for_now;
  if (!for_now || now - refused_since_ >= options_.give_up_after) {
    too_late_ = kind == wire::RefusalKind::run_ending;
    return give_up({ErrorKind::refused, reason});
  }
  if (refused_since_ == now) environment_.log(LogLevel::warning, reason + "; trying again");
  lost_at_ = never; // it is there
  link_.close();
  channel_.detach();
  state_ = State::connecting;
  stop_watching();
  retry_.start(*environment_.loop, now + retry_longest);
}

void ControlClient::on_event(net::Transport& transport, net::Event& event) {
  const net::Link link{&transport, event.connection};
  if (other_.link && link == other_.link) return on_other(event);
  if (link_ != link) return; // of an earlier connection
  switch (event.kind) {
  case net::EventKind::connected:
    was_connected_ = true;
    state_ = State::waits_for_welcome;
    impossible_rails_ = 0;
    send_hello();
    break;
  case net::EventKind::message: receive(event.message); break;
  case net::EventKind::writable: channel_.flush(); break;
  case net::EventKind::closed: on_closed(event.reason); break;
  case net::EventKind::accepted: break;
  }
}

void ControlClient::on_closed(net::CloseReason reason) {
  const auto without_link = [this] {
    channel_.detach();
    link_ = {};
  };
  if (reason == net::CloseReason::version_mismatch) {
    without_link();
    return give_up({ErrorKind::refused,
                    fmt::format("{} speaks another version of the protocol: run the same release "
                                "of fanin on all nodes",
                                rail().text())});
  }
  const bool unknown = reason == net::CloseReason::unknown_host;
  if (!unknown) impossible_rails_ = 0;
  if (unknown && !was_connected_ && no_rail_left()) {
    without_link();
    return give_up(
        {ErrorKind::not_found, fmt::format("{}: there is no host of that name", rail().text())});
  }
  lost(net::name(reason));
}

void ControlClient::flush() {
  if (state_ == State::stopped) return;
  channel_.flush();
  if (connected() && channel_.failed()) {
    link_.close(true);
    lost("it does not read");
  }
}

} // namespace fanin::builder
