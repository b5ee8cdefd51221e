#include "fanin/message/connector.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "fanin/base/try.hpp"
#include "fanin/memory/heap_page.hpp"

namespace fanin::message::detail {

Connector::Connector(Context& context, ConnectorOwner& owner, SocketKind kind,
                     const Options& options)
    : context_(context),
      owner_(owner),
      kind_(kind),
      options_(options),
      retry_([this] { attempt(); }),
      deadline_([this] { fail(CloseReason::no_answer); }) {}

Connector::~Connector() { close(); }

Result<> Connector::connect(const net::Url& url) {
  auto transport = FANIN_TRY(context_.transport(url));
  url_ = url;
  transport_ = transport;
  return make_connection();
}

Result<> Connector::make_connection() {
  const auto made =
      FANIN_TRY(transport_->connect(url_, {.receive_pool = &context_.receive_pool(),
                                           .handler = this,
                                           .send_queue_bytes = options_.send_queue_bytes,
                                           .held_bytes = options_.send_queue_bytes,
                                           .low_latency = options_.low_latency}));
  link_ = {transport_, made};
  return {};
}

void Connector::attempt() {
  if (auto made = make_connection(); !made) ended(CloseReason::unreachable, made.error().text);
}

void Connector::close() {
  retry_.cancel();
  deadline_.cancel();
  link_.close();
  open_ = false;
}

void Connector::fail(CloseReason reason) {
  if (!link_) return; // closed
  link_.close(true);
  if (open_) context_.aborted();
  ended(reason);
}

// A cause that stays the same is said once.
void Connector::say(std::string text) {
  if (text == said_) return;
  context_.log(LogLevel::warning, fmt::format("{}: {}; trying again", url_.text(), text));
  said_ = std::move(text);
}

void Connector::ended(CloseReason reason, std::string_view why) {
  link_ = {};
  hello_pending_ = false;
  deadline_.cancel();
  const Time now = context_.loop().now();
  if (std::exchange(open_, false) && now - opened_at_ >= options_.reconnect.max) retry_after_ = {};
  retry_after_ = std::clamp(2 * retry_after_, options_.reconnect.initial, options_.reconnect.max);
  say(why.empty()                          ? std::string(name(reason))
      : reason == CloseReason::unreachable ? fmt::format("no connection: {}", why)
                                           : fmt::format("{}: {}", name(reason), why));
  const auto half = static_cast<std::uint64_t>(retry_after_.count() / 2);
  const Duration jitter{static_cast<Duration::rep>(context_.random().below(half + 1))};
  retry_.start(context_.loop(), now + retry_after_ / 2 + jitter);
  owner_.on_closed(reason); // last: the owner may close or destroy this
}

void Connector::on_event(net::Transport&, net::Event& event) {
  switch (event.kind) {
  case net::EventKind::accepted: break; // it does not listen
  case net::EventKind::connected:
    deadline_.start(context_.loop(), context_.loop().now() + hello_timeout);
    send_hello();
    break;
  case net::EventKind::message:
    if (open_) {
      owner_.on_message(event);
    } else {
      read_answer(event.message);
    }
    break;
  case net::EventKind::writable:
    if (hello_pending_) send_hello();
    if (open_) owner_.on_writable();
    break;
  case net::EventKind::closed: {
    const auto why = event.message.bytes();
    ended(reason_of(event.reason), {reinterpret_cast<const char*>(why.data()), why.size()});
    break;
  }
  }
}

void Connector::send_hello() {
  const Hello hello{.kind = kind_,
                    .page_max = context_.receive_pool().page_size() / 2,
                    .message_max = options_.message_max,
                    .lent_max = options_.send_queue_bytes / 2};
  const memory::View view = memory::HeapPage::copy(std::as_bytes(std::span{&hello, 1}));
  hello_pending_ = link_.send({&view, 1}) == net::SendOutcome::backpressure;
}

void Connector::read_answer(const memory::View& message) {
  const auto answer = read_hello(message.bytes());
  if (!answer) return fail(answer.error());
  switch (answer->refusal) {
  case Refusal::none: break;
  case Refusal::wrong_version: return fail(CloseReason::wrong_version);
  case Refusal::wrong_kind: return fail(CloseReason::wrong_kind);
  }
  if (answer->kind != kind_) return fail(CloseReason::not_a_socket);
  deadline_.cancel();
  open_ = true;
  opened_at_ = context_.loop().now();
  if (!std::exchange(said_, {}).empty())
    context_.log(LogLevel::info, fmt::format("{}: connected", url_.text()));
  owner_.on_open(*answer);
}

} // namespace fanin::message::detail
