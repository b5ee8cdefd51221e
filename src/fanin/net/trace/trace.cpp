#include "fanin/net/trace/trace.hpp"

#include <algorithm>
#include <utility>
#include <vector>

#include <fmt/format.h>

namespace fanin::net {
namespace {

json::Value to_json(const Traffic& traffic) {
  return json::Object{{"messages_sent", traffic.messages_sent},
                      {"bytes_sent", traffic.bytes_sent},
                      {"backpressure", traffic.backpressure},
                      {"messages_received", traffic.messages_received},
                      {"bytes_received", traffic.bytes_received}};
}

json::Value to_json(const Histogram& times) {
  return json::Object{{"count", times.count()},
                      {"p50", times.quantile(0.5).count()},
                      {"p99", times.quantile(0.99).count()},
                      {"p999", times.quantile(0.999).count()}};
}

std::string key(std::string_view words) {
  std::string text{words};
  std::ranges::replace(text, ' ', '_');
  return text;
}

} // namespace

TraceTransport::TraceTransport(Loop& loop, std::unique_ptr<Transport> below, LogFunction log)
    : Decorator("trace", std::move(below)), loop_(loop), log_(std::move(log)) {}

TraceTransport::~TraceTransport() {
  if (log_) log_(LogLevel::info, fmt::format("trace: {}", to_json().dump()));
}

const Traffic* TraceTransport::traffic(ConnectionId connection) const {
  const auto found = connections_.find(connection);
  return found == connections_.end() ? nullptr : &found->second.traffic;
}

json::Value TraceTransport::to_json() const {
  json::Value result = net::to_json(trace_.traffic);
  result["too_large"] = trace_.too_large;
  for (std::size_t i = 0; i < trace_.events.size(); ++i) {
    result["events"][key(name(static_cast<EventKind>(i)))] = trace_.events[i];
  }
  for (std::size_t i = 0; i < trace_.closed.size(); ++i) {
    result["closed"][key(name(static_cast<CloseReason>(i)))] = trace_.closed[i];
  }
  result["handling_ns"] = net::to_json(trace_.handling);
  result["held_back_ns"] = net::to_json(trace_.held_back);
  result["connecting_ns"] = net::to_json(trace_.connecting);
  result["connections"] = json::List{};
  for (const auto& [id, connection] : connections_) {
    json::Value entry = net::to_json(connection.traffic);
    entry["peer"] = connection.peer;
    result["connections"].append(std::move(entry));
  }
  return result;
}

Result<ConnectionId> TraceTransport::connect(const Url& url, const ConnectionOptions& options) {
  auto made = Decorator::connect(url, options);
  if (made) connections_[*made] = {.peer = url.text(), .connect_at = loop_.clock().now()};
  return made;
}

SendOutcome TraceTransport::send(ConnectionId connection, std::span<const memory::View> extents) {
  const SendOutcome outcome = below().send(connection, extents);
  const auto found = connections_.find(connection);
  if (found == connections_.end()) return outcome;
  Connection& traced = found->second;
  if (outcome == SendOutcome::accepted) {
    std::uint64_t size = 0;
    for (const memory::View& extent : extents) size += extent.size;
    for (Traffic* const traffic : {&traced.traffic, &trace_.traffic}) {
      ++traffic->messages_sent;
      traffic->bytes_sent += size;
    }
  } else if (outcome == SendOutcome::backpressure) {
    ++traced.traffic.backpressure;
    ++trace_.traffic.backpressure;
    if (traced.refused_at == never) traced.refused_at = loop_.clock().now();
  } else if (outcome == SendOutcome::too_large) {
    ++trace_.too_large;
  }
  return outcome;
}

std::size_t TraceTransport::poll(std::span<Event> events) {
  const std::size_t count_given = below().poll(events);
  for (const Event& event : events.first(count_given)) count(event);
  return count_given;
}

void TraceTransport::count(const Event& event) {
  ++trace_.events[static_cast<std::size_t>(event.kind)];
  Connection& connection = connections_[event.connection];
  switch (event.kind) {
  case EventKind::accepted: connection.peer = below().peer_name(event.connection); break;
  case EventKind::connected:
    trace_.connecting.add(loop_.clock().now() - connection.connect_at);
    break;
  case EventKind::message:
    for (Traffic* const traffic : {&connection.traffic, &trace_.traffic}) {
      ++traffic->messages_received;
      traffic->bytes_received += std::uint64_t{event.message.size} + event.rest.size;
    }
    break;
  case EventKind::writable:
    if (connection.refused_at == never) break;
    trace_.held_back.add(loop_.clock().now() - std::exchange(connection.refused_at, never));
    break;
  case EventKind::closed: ended(event.connection, event.reason); break;
  }
}

void TraceTransport::close(ConnectionId connection, bool abort) {
  below().close(connection, abort);
  ended(connection, CloseReason::local);
}

void TraceTransport::ended(ConnectionId id, CloseReason reason) {
  const auto found = connections_.find(id);
  if (found == connections_.end()) return;
  ++trace_.closed[static_cast<std::size_t>(reason)];
  if (log_) {
    const Connection& connection = found->second;
    log_(LogLevel::debug, fmt::format("trace: {}: {}: {}", connection.peer, name(reason),
                                      net::to_json(connection.traffic).dump()));
  }
  connections_.erase(found);
}

// The transport below withdraws the connections of which nobody has been told.
void TraceTransport::close_listener(ListenerId listener) {
  std::vector<const Event*> accepted;
  for (const Event& event : undispatched()) {
    if (event.handler != nullptr && event.kind == EventKind::accepted) accepted.push_back(&event);
  }
  below().close_listener(listener);
  for (const Event* const event : accepted) {
    if (event->handler == nullptr) ended(event->connection, CloseReason::local);
  }
}

void TraceTransport::dispatching(std::span<Event> events) {
  Decorator::dispatching(events);
  const Time now = loop_.clock().now();
  if (handing_out_ > 0) {
    trace_.handling.add((now - handing_out_since_) / static_cast<Duration::rep>(handing_out_),
                        handing_out_);
  }
  handing_out_ = events.size();
  handing_out_since_ = now;
}

} // namespace fanin::net
