#include "fanin/net/fault/fault.hpp"

#include <algorithm>
#include <array>
#include <optional>
#include <vector>

#include <fmt/format.h>

#include "fanin/base/number.hpp"
#include "fanin/base/try.hpp"
#include "fanin/base/units.hpp"

namespace fanin::net {
namespace {

// Events held back; then the transport below waits, which is backpressure to the peers.
constexpr std::size_t held_max = 1024;
constexpr std::size_t events_per_turn = 64;

std::unexpected<Error> wrong(const Url& url, std::string_view option, std::string_view what) {
  return fail(ErrorKind::usage, fmt::format("{}: option \"{}\": {}", url.text(), option, what));
}

std::optional<double> parse_probability(std::string_view text) {
  const auto number = parse_number<double>(text);
  return number && *number >= 0 && *number <= 1 ? number : std::nullopt;
}

} // namespace

Result<FaultOptions> FaultOptions::take_from(Url& url) {
  FaultOptions result;
  Url rest = url;
  for (const auto& [option, value] : url.options) {
    if (option == "seed") {
      const auto seed = parse_number<std::uint64_t>(value);
      if (!seed)
        return wrong(url, option, fmt::format("\"{}\" is not a number from 0 to 2^64 - 1", value));
      result.seed = *seed;
    } else if (option == "loss" || option == "backpressure") {
      const auto probability = parse_probability(value);
      if (!probability)
        return wrong(url, option,
                     fmt::format("\"{}\" is not a probability, a number from 0 to 1", value));
      (option == "loss" ? result.loss : result.backpressure) = *probability;
    } else if (option == "delay") {
      const auto delay = parse_duration(value);
      if (!delay) return wrong(url, option, delay.error().text);
      result.delay = *delay;
    } else {
      continue;
    }
    rest.options.erase(option);
  }
  url = std::move(rest);
  return result;
}

// --- connections ---

Result<std::shared_ptr<FaultTransport::Origin>>
FaultTransport::make_origin(Url& url, const ConnectionOptions& options) {
  auto origin = std::make_shared<Origin>();
  origin->url_options = url.options;
  auto faults = FANIN_TRY(FaultOptions::take_from(url));
  for (const auto& [option, value] : url.options) origin->url_options.erase(option);
  origin->faults = faults;
  origin->owner = options.handler;
  return origin;
}

Result<> FaultTransport::check_address(const Url& url) const {
  Url address = url;
  FANIN_TRY(FaultOptions::take_from(address));
  return Decorator::check_address(address);
}

Result<ListenerId> FaultTransport::listen(const Url& url, const ConnectionOptions& options) {
  Url address = url;
  auto origin = FANIN_TRY(make_origin(address, options));
  ConnectionOptions below_options = options;
  below_options.handler = origin.get();
  const auto listener = FANIN_TRY(Decorator::listen(address, below_options));
  origin->listener = listener;
  listeners_[listener] = std::move(origin);
  return listener;
}

Url FaultTransport::listening_url(ListenerId listener) const {
  Url url = Decorator::listening_url(listener);
  if (const auto found = listeners_.find(listener); found != listeners_.end()) {
    url.options.insert(found->second->url_options.begin(), found->second->url_options.end());
  }
  return url;
}

// Also those of which nobody has been told: their `accepted` is held, or still with the loop.
void FaultTransport::close_listener(ListenerId listener) {
  std::vector<ConnectionId> unseen;
  const auto look_at = [&](const Event& event) {
    if (event.kind != EventKind::accepted) return;
    const Connection* const connection = find(event.connection);
    if (connection != nullptr && connection->origin->listener == listener) {
      unseen.push_back(event.connection);
    }
  };
  held_.for_each(look_at);
  for (const Event& event : undispatched()) {
    if (event.handler != nullptr) look_at(event);
  }
  below().close_listener(listener);
  for (const ConnectionId id : unseen) close(id, true);
  listeners_.erase(listener);
}

Result<ConnectionId> FaultTransport::connect(const Url& url, const ConnectionOptions& options) {
  Url address = url;
  auto origin = FANIN_TRY(make_origin(address, options));
  ConnectionOptions below_options = options;
  below_options.handler = origin.get();
  auto connection = Decorator::connect(address, below_options);
  if (connection) add(*connection, std::move(origin));
  return connection;
}

FaultTransport::Connection& FaultTransport::add(ConnectionId id, std::shared_ptr<Origin> origin) {
  // The two ends of a connection draw differently even where both are the first of their process.
  const std::uint64_t number = 2 * ++connections_made_ + (origin->listener == ListenerId::none);
  const Random random(Random(origin->faults.seed ^ (number << 32)).next());
  return connections_.emplace(id, Connection{.origin = std::move(origin), .random = random})
      .first->second;
}

FaultTransport::Connection* FaultTransport::find(ConnectionId id) {
  const auto found = connections_.find(id);
  return found == connections_.end() ? nullptr : &found->second;
}

SendOutcome FaultTransport::send(ConnectionId id, std::span<const memory::View> extents) {
  Connection* const connection = find(id);
  if (connection == nullptr || !connection->open || connection->ended) return SendOutcome::closed;
  if (connection->refused) return SendOutcome::backpressure;
  const FaultOptions& faults = connection->origin->faults;
  if (!connection->accepts_next && connection->draw(faults.backpressure)) {
    ++counters_.refused;
    connection->refused = true;
    hold(*connection, {.kind = EventKind::writable, .connection = id});
    set_timer();
    return SendOutcome::backpressure;
  }
  if (connection->draw(faults.loss)) {
    lose(id, *connection);
    set_timer();
    return SendOutcome::accepted; // lost with the connection; `closed` is coming
  }
  const SendOutcome outcome = below().send(id, extents);
  if (outcome == SendOutcome::accepted) connection->accepts_next = false;
  return outcome;
}

void FaultTransport::close(ConnectionId id, bool abort) {
  withdraw(id);
  if (find(id) == nullptr) return;
  below().close(id, abort);
  if (held_.erase_if([id](const Event& event) { return event.connection == id; })) {
    released_ = true;
    set_timer();
  }
  connections_.erase(id);
}

// --- events ---

bool FaultTransport::full() const { return held_.size() >= held_max; }

std::size_t FaultTransport::poll(std::span<Event> events) {
  released_ = false;
  if (full()) {
    below().flush();
  } else {
    take_from_below(events.size());
  }
  std::size_t count = 0;
  while (count < events.size() && held_.is_due(loop_.now())) events[count++] = hand_out();
  set_timer();
  return count;
}

void FaultTransport::take_from_below(std::size_t limit) {
  std::array<Event, events_per_turn> events;
  const std::size_t count = below().poll(std::span(events).first(std::min(limit, events.size())));
  below().dispatching(std::span(events).first(count));
  for (Event& event : std::span(events).first(count)) {
    if (event.handler != nullptr) take(std::exchange(event, {})); // null: lost by one before it
  }
  below().dispatching({});
}

void FaultTransport::take(Event event) {
  const ConnectionId id = event.connection;
  if (event.kind == EventKind::accepted) {
    add(id, listeners_.at(static_cast<const Origin*>(event.handler)->listener));
  }
  Connection& connection = connections_.at(id);
  if (event.kind == EventKind::message && connection.draw(connection.origin->faults.loss)) {
    released_ = true;
    lose(id, connection);
    return;
  }
  if (event.kind == EventKind::closed) connection.ended = true;
  hold(connection, std::move(event));
}

void FaultTransport::lose(ConnectionId id, Connection& connection) {
  ++counters_.lost;
  below().close(id, true);
  connection.ended = true;
  hold(connection, {.kind = EventKind::closed, .reason = CloseReason::peer_died, .connection = id});
}

void FaultTransport::hold(Connection& connection, Event event) {
  event.handler = connection.origin->owner;
  const auto delay_max = static_cast<std::uint64_t>(connection.origin->faults.delay.count());
  if (delay_max > 0) {
    const Duration delay{static_cast<Duration::rep>(connection.random.below(delay_max + 1))};
    connection.last_due = std::max(connection.last_due, loop_.now() + delay);
    ++counters_.delayed;
  }
  held_.add(connection.last_due, std::move(event));
}

Event FaultTransport::hand_out() {
  Event event = held_.take();
  Connection& connection = connections_.at(event.connection);
  switch (event.kind) {
  case EventKind::accepted:
  case EventKind::connected: connection.open = true; break;
  case EventKind::message: break;
  case EventKind::writable:
    connection.refused = false;
    connection.accepts_next = true;
    break;
  case EventKind::closed: connections_.erase(event.connection); break;
  }
  return event;
}

void FaultTransport::set_timer() { wake_.set(loop_, held_.next()); }

bool FaultTransport::arm() {
  if (std::exchange(released_, false) || held_.is_due(loop_.now())) return false;
  return full() || below().arm();
}

// While nothing is taken from below, what happens there must not wake the loop: the timer does.
int FaultTransport::descriptor() const { return full() ? -1 : below().descriptor(); }

} // namespace fanin::net
