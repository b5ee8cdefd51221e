#include "fanin/builder/building/readout_links.hpp"

#include <algorithm>
#include <utility>

namespace fanin::builder {

ReadoutLinks::ReadoutLinks(const System& system, NodeEnvironment environment, Receiver& receiver)
    : system_(system),
      digest_(system.digest()),
      environment_(std::move(environment)),
      receiver_(receiver),
      readouts_(system.readout_units.size()),
      unidentified_(*environment_.loop, system.dead_after,
                    [this](net::Link link) { hang_up(link, "connected, and never said hello"); }) {
  if (system.shaping.on()) {
    grants_.emplace(system.shaping, readouts_.size(), system.protocol == Protocol::pull);
  }
}

ReadoutLinks::~ReadoutLinks() {
  end();
  unidentified_.close_all();
  for (const Listener& listener : listeners_) listener.transport->close_listener(listener.id);
}

Result<std::vector<net::Url>> ReadoutLinks::listen(std::span<const net::Url> rails,
                                                   memory::PagePool& receive_pool) {
  std::vector<net::Url> listening;
  Error failure{ErrorKind::usage, "no address to listen at"};
  for (const net::Url& url : rails) {
    const auto transport = environment_.transports->find(url);
    if (!transport) return std::unexpected(transport.error());
    const auto listener =
        (*transport)
            ->listen(url, {.receive_pool = &receive_pool,
                           .handler = this,
                           .max_message = system_.shaping.on() ? system_.shaping.carrier : 0,
                           .peers_must_identify = true});
    if (!listener) {
      failure = listener.error();
      if (rails.size() > 1) environment_.log(LogLevel::error, failure.text);
      continue;
    }
    listeners_.push_back({*transport, *listener});
    listening.push_back((*transport)->listening_url(*listener));
  }
  if (listening.empty()) return std::unexpected(failure);
  return listening;
}

void ReadoutLinks::begin(RunNumber run, Incarnation incarnation) {
  end();
  run_ = run;
  incarnation_ = incarnation;
}

void ReadoutLinks::end() {
  incarnation_ = 0;
  for (Readout& readout : readouts_) {
    readout.data.close(true);
    readout.requests.link().close(true);
    readout = {};
  }
  for (std::size_t i = 0; grants_ && i < readouts_.size(); ++i) {
    grants_->closed(static_cast<NodeId>(i));
  }
  grant_tick_.cancel();
  granting_.clear();
  owners_.clear();
}

// --- connections ---------------------------------------------------------------------------------

void ReadoutLinks::on_event(net::Transport& transport, net::Event& event) {
  const net::Link link{&transport, event.connection};
  switch (event.kind) {
  case net::EventKind::message: {
    const auto known = owners_.find(link);
    if (known == owners_.end()) return on_hello(link, event.message);
    if (known->second.role == wire::Role::data) {
      const NodeId readout = known->second.readout;
      const std::uint64_t bytes = std::uint64_t{event.message.size} + event.rest.size;
      if (grants_ && !grants_->received(readout, bytes)) {
        return hang_up(link, "more data than it was granted");
      }
      return receiver_.block(readout, event);
    }
    return hang_up(link, "a message over a connection for requests");
  }
  case net::EventKind::writable:
    if (const auto known = owners_.find(link); known != owners_.end()) {
      if (known->second.role == wire::Role::request) {
        readouts_[known->second.readout].requests.flush();
        requests_pending_ = true;
      }
    }
    break;
  case net::EventKind::accepted: unidentified_.add(link); break;
  case net::EventKind::closed: on_closed(link); break;
  case net::EventKind::connected: break;
  }
}

void ReadoutLinks::on_closed(net::Link link) {
  unidentified_.remove(link);
  const auto known = owners_.find(link);
  if (known == owners_.end()) return;
  Readout& readout = readouts_[known->second.readout];
  if (known->second.role == wire::Role::request) {
    disconnect_requests(readout);
  } else {
    disconnect_data(readout);
    receiver_.connections_changed();
  }
}

void ReadoutLinks::hang_up(NodeId readout, std::string_view why) {
  hang_up(readouts_[readout].data, why);
}

void ReadoutLinks::hang_up(net::Link link, std::string_view why) {
  refusals_.say(environment_.log, environment_.loop->now(), LogLevel::error,
                fmt::format("{}: {}; connection closed", link.peer(), why));
  if (const auto known = owners_.find(link); known != owners_.end()) {
    Readout& readout = readouts_[known->second.readout];
    if (known->second.role == wire::Role::request) {
      disconnect_requests(readout);
    } else {
      disconnect_data(readout);
    }
  }
  link.close(true);
  receiver_.connections_changed();
}

void ReadoutLinks::disconnect_data(Readout& readout) {
  owners_.erase(readout.data);
  readout.data.close(true);
  readout.connected = 0;
  readout.unfinished = 0;
  readout.grants = {};
  if (grants_) grants_->closed(static_cast<NodeId>(&readout - readouts_.data()));
  changed_ = true;
}

void ReadoutLinks::disconnect_requests(Readout& readout) {
  owners_.erase(readout.requests.link());
  readout.requests.link().close(true);
  readout.requests = {};
  readout.requests_to = 0;
  readout.to_request.clear();
  changed_ = true;
}

void ReadoutLinks::drop(NodeId node) {
  disconnect_data(readouts_[node]);
  disconnect_requests(readouts_[node]);
}

// --- hello ---------------------------------------------------------------------------------------

// None: the page is no hello.
std::optional<wire::Hello> ReadoutLinks::hello_in(const memory::View& page) {
  wire::Hello hello;
  const bool good =
      for_each_message(page.bytes(), [&](wire::MessageType type, std::span<const std::byte> body) {
        wire::MessageReader reader{body};
        return type == wire::MessageType::hello && reader.read(hello);
      });
  if (!good) return {};
  return hello;
}

// Empty: it is the hello of a readout unit.
std::string ReadoutLinks::wrong_with(const wire::Hello& hello) const {
  if (hello.version != wire::protocol_version) {
    return fmt::format("speaks version {} of the protocol, not {}", hello.version,
                       wire::protocol_version);
  }
  const bool role = hello.role == wire::Role::data || hello.role == wire::Role::request;
  if (!role) return "its hello is one for an event manager";
  if (hello.node >= readouts_.size()) return fmt::format("knows no readout unit {}", hello.node);
  return {};
}

void ReadoutLinks::on_hello(net::Link link, const memory::View& page) {
  unidentified_.remove(link);
  const auto hello = hello_in(page);
  if (!hello) return hang_up(link, "its first message is no hello");
  if (const std::string wrong = wrong_with(*hello); !wrong.empty()) return hang_up(link, wrong);
  if (incarnation_ == 0 || hello->run != run_ || hello->peer_incarnation != incarnation_ ||
      hello->system_digest != digest_) {
    ++stale_;
    link.close(true);
    return;
  }
  link.mark_identified();
  Readout& readout = readouts_[hello->node];
  changed_ = true;
  if (hello->role == wire::Role::request) {
    disconnect_requests(readout);
    readout.requests = ControlBatcher{link, *environment_.control_pool};
    readout.requests_to = hello->incarnation;
    owners_[link] = {hello->node, wire::Role::request};
    receiver_.requests_opened(hello->node);
    return;
  }
  if (readout.data) disconnect_data(readout);
  readout.data = link;
  readout.connected = hello->incarnation;
  readout.connection = hello->connection;
  owners_[link] = {hello->node, wire::Role::data};
  if (grants_) {
    readout.grants = ControlBatcher{link, *environment_.control_pool};
    grants_->opened(hello->node);
  }
  receiver_.data_opened(hello->node);
  receiver_.connections_changed();
}

// --- what is said over them ----------------------------------------------------------------------

void ReadoutLinks::request(EventNumber batch) {
  for (Readout& readout : readouts_) {
    if (!readout.requests) continue;
    readout.to_request.push_back(batch);
    requests_pending_ = true;
  }
}

wire::Grant ReadoutLinks::grant_for(NodeId node) {
  return {.bytes = grants_->say(node),
          .readout_incarnation = readouts_[node].connected,
          .builder_incarnation = incarnation_,
          .connection = readouts_[node].connection};
}

void ReadoutLinks::send_grants() {
  if (!grants_) return;
  for (std::size_t i = 0; i < grants_->unsaid().size();) {
    const NodeId node = grants_->unsaid()[i];
    if (!readouts_[node].grants.roomy()) {
      ++i;
      continue;
    }
    readouts_[node].grants.append(grant_for(node)); // it is no longer among them
    if (std::ranges::find(granting_, node) == granting_.end()) granting_.push_back(node);
  }
  std::erase_if(granting_, [this](NodeId node) {
    readouts_[node].grants.flush();
    return readouts_[node].grants.is_idle();
  });
}

void ReadoutLinks::report(ControlClient& control) {
  if (!changed_) return;
  changed_ = false;
  for (std::size_t i = 0; i < readouts_.size(); ++i) {
    Readout& readout = readouts_[i];
    wire::Reached& reported = readout.reported;
    const bool yes = readout.connected != 0 && (system_.protocol == Protocol::push ||
                                                readout.requests_to == readout.connected);
    const bool same =
        yes ? reported.yes != 0 && reported.connection == readout.connection : reported.yes == 0;
    if (same) continue;
    if (!control.roomy()) {
      changed_ = true;
      return;
    }
    if (yes) {
      reported = {static_cast<NodeId>(i), 1, readout.connected, readout.connection, 0};
    } else {
      reported.yes = 0;
    }
    control.send(reported);
  }
}

} // namespace fanin::builder
