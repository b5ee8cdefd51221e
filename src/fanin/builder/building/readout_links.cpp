#include "fanin/builder/building/readout_links.hpp"

#include <algorithm>
#include <utility>

#include "fanin/base/assert.hpp"

namespace fanin::builder {

ReadoutLinks::ReadoutLinks(const System& system, NodeEnvironment environment, Receiver& receiver)
    : system_(system),
      digest_(system.digest()),
      environment_(std::move(environment)),
      receiver_(receiver),
      readouts_(system.readout_units.size()),
      unidentified_(*environment_.loop, system.dead_after, [this](net::Link link) {
        hang_up(link, "connected, and sent no hello in time");
      }) {
  for (std::size_t rail = 0; system.shaping.on() && rail < system.rails; ++rail) {
    grants_.emplace_back(system.shaping.per_rail(system.rails), readouts_.size(),
                         system.protocol == Protocol::pull);
  }
}

ReadoutLinks::~ReadoutLinks() {
  end();
  unidentified_.close_all();
}

Result<std::vector<net::Url>> ReadoutLinks::listen(std::span<const net::Url> rails,
                                                   memory::PagePool& receive_pool) {
  auto listeners =
      listen_on_rails(environment_, rails,
                      {.receive_pool = &receive_pool,
                       .handler = this,
                       .max_message = system_.shaping.on() ? system_.shaping.carrier : 0,
                       .urgent = true, // it sends grants, requests and answers, no data
                       .peers_must_identify = true});
  if (!listeners) return std::unexpected(listeners.error());
  listeners_ = std::move(*listeners);
  return urls_of(listeners_);
}

void ReadoutLinks::begin(RunNumber run, Incarnation incarnation) {
  end();
  run_ = run;
  incarnation_ = incarnation;
}

void ReadoutLinks::end() {
  incarnation_ = 0;
  for (Readout& readout : readouts_) {
    for (DataLane& lane : readout.lanes) lane.data.close(true);
    readout.requests.link().close(true);
    readout = {};
  }
  for (shaping::Grants& grants : grants_) {
    for (std::size_t i = 0; i < readouts_.size(); ++i) grants.closed(static_cast<NodeId>(i));
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
      const Lane lane = lane_of(known->second.readout, known->second.lane);
      const std::uint64_t bytes = std::uint64_t{event.message.size} + event.rest.size;
      if (!grants_.empty() && !grants_[lane_at(lane).rail].received(lane.readout, bytes)) {
        return hang_up(link, "more data than it was granted");
      }
      return receiver_.block(lane, event);
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
    disconnect_lane(readout, known->second.lane);
    receiver_.connections_changed();
  }
}

void ReadoutLinks::hang_up(const Lane& lane, std::string_view why) {
  hang_up(lane_at(lane).data, why);
}

void ReadoutLinks::hang_up(net::Link link, std::string_view why) {
  refusals_.write(environment_.log, environment_.loop->now(), LogLevel::error,
                  fmt::format("{}: {}; connection closed", link.peer(), why));
  if (const auto known = owners_.find(link); known != owners_.end()) {
    const Owner owner = known->second;
    Readout& readout = readouts_[owner.readout];
    if (owner.role == wire::Role::request) {
      disconnect_requests(readout);
    } else {
      disconnect_lane(readout, owner.lane);
      receiver_.data_refused(lane_of(owner.readout, owner.lane));
    }
  }
  link.close(true);
  receiver_.connections_changed();
}

void ReadoutLinks::disconnect_lane(Readout& readout, std::size_t index) {
  DataLane& lane = readout.lanes[index];
  if (!lane.data) return;
  owners_.erase(lane.data);
  lane.data.close(true);
  if (!grants_.empty()) {
    grants_[lane.rail].closed(static_cast<NodeId>(&readout - readouts_.data()));
  }
  if (readout.complete()) readout.lane_lost = static_cast<std::uint32_t>(index);
  lane = {.rail = lane.rail};
  FANIN_ASSERT(readout.open > 0);
  --readout.open;
  changed_ = true;
}

void ReadoutLinks::disconnect_data(Readout& readout) {
  for (std::size_t i = 0; i < readout.lanes.size(); ++i) disconnect_lane(readout, i);
}

void ReadoutLinks::disconnect_requests(Readout& readout) {
  owners_.erase(readout.requests.link());
  readout.requests.link().close(true);
  readout.requests = {};
  readout.requests_to = 0;
  readout.to_request.clear();
  changed_ = true;
}

void ReadoutLinks::drop(const Lane& lane) {
  Readout& readout = readouts_[lane.readout];
  if (!readout.lanes.empty()) disconnect_lane(readout, lane.index);
  if (lane.index == 0) disconnect_requests(readout); // over the same rail
}

std::string ReadoutLinks::rail_text(const Lane& lane) const {
  const Readout& readout = readouts_[lane.readout];
  if (listeners_.size() == 1 || readout.lanes.empty()) return {};
  return fmt::format(" over rail {}", readout.lanes[lane.index].rail + 1);
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
  if (hello.node >= readouts_.size())
    return fmt::format("names readout unit {}, which does not exist", hello.node);
  const bool lane = hello.lanes >= 1 && hello.lanes <= system_.lanes(hello.node) &&
                    hello.lane < hello.lanes && hello.rail < system_.rails;
  if (!lane) {
    return fmt::format("says lane {} of {} over rail {}", hello.lane + 1, hello.lanes,
                       hello.rail + 1);
  }
  return {};
}

void ReadoutLinks::on_hello(net::Link link, const memory::View& page) {
  unidentified_.remove(link);
  const auto hello = hello_in(page);
  if (!hello) return hang_up(link, "its first message is not a hello");
  if (const std::string wrong = wrong_with(*hello); !wrong.empty()) return hang_up(link, wrong);
  if (incarnation_ == 0 || hello->run != run_ || hello->peer_incarnation != incarnation_ ||
      hello->system_digest != digest_) {
    ++stale_;
    link.close(true);
    return;
  }
  Readout& readout = readouts_[hello->node];
  const bool same = hello->incarnation == readout.incarnation;
  const bool overtaken = hello->role == wire::Role::data && same && readout.open > 0 &&
                         hello->connection < readout.connection; // by the hello of a later one
  // Not by what a connection has said that is over: whoever lied there would keep the real one out.
  const bool earlier = hello->incarnation < receiver_.incarnation_of(hello->node);
  if (overtaken || earlier) {
    ++stale_;
    link.close(true);
    return;
  }
  link.mark_identified();
  changed_ = true;
  if (hello->role == wire::Role::request) {
    disconnect_requests(readout);
    readout.requests = ControlBatcher{link, *environment_.control_pool};
    readout.requests_to = hello->incarnation;
    owners_[link] = {hello->node, wire::Role::request};
    receiver_.requests_opened(hello->node);
    return;
  }
  open_lane(link, *hello);
}

// The hello is of a lane beside those that are open.
bool ReadoutLinks::fits_in(const Readout& readout, const wire::Hello& hello) const {
  if (hello.lanes != readout.lanes.size()) return false;
  for (std::size_t i = 0; i < readout.lanes.size(); ++i) {
    const DataLane& lane = readout.lanes[i];
    if (i != hello.lane && lane.data && lane.rail == hello.rail) return false;
  }
  return true;
}

void ReadoutLinks::open_lane(net::Link link, const wire::Hello& hello) {
  Readout& readout = readouts_[hello.node];
  const bool new_one =
      hello.incarnation != readout.incarnation || hello.connection != readout.connection;
  if (new_one || readout.lanes.empty()) { // what comes over the lanes of an earlier one comes again
    disconnect_data(readout);
    readout.incarnation = hello.incarnation;
    readout.connection = hello.connection;
    readout.lanes.clear();
    readout.lanes.resize(hello.lanes);
  } else if (!fits_in(readout, hello)) {
    return hang_up(link, "its lanes do not fit together");
  } else {
    disconnect_lane(readout, hello.lane);
  }
  DataLane& lane = readout.lanes[hello.lane];
  lane.data = link;
  lane.rail = hello.rail;
  ++readout.open;
  owners_[link] = {hello.node, wire::Role::data, hello.lane};
  if (!grants_.empty()) {
    lane.grants = ControlBatcher{link, *environment_.control_pool};
    grants_[lane.rail].opened(hello.node);
  }
  receiver_.data_opened(lane_of(hello.node, hello.lane));
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

wire::Grant ReadoutLinks::grant_for(const Lane& lane) {
  const Readout& readout = readouts_[lane.readout];
  return {.bytes = grants_[readout.lanes[lane.index].rail].take(lane.readout),
          .readout_incarnation = readout.incarnation,
          .builder_incarnation = incarnation_,
          .connection = readout.connection,
          .lane = static_cast<std::uint32_t>(lane.index)};
}

// They come with the request.
void ReadoutLinks::send_first_grants(NodeId node) {
  Readout& readout = readouts_[node];
  if (grants_.empty() || readout.requests_to != readout.incarnation) return;
  for (std::size_t i = 0; i < readout.lanes.size(); ++i) {
    const bool unsent = readout.lanes[i].data && grants_[readout.lanes[i].rail].unsent(node);
    if (unsent && readout.requests.roomy()) readout.requests.append(grant_for(lane_of(node, i)));
  }
}

std::optional<Lane> ReadoutLinks::lane_over(std::size_t rail, NodeId node) const {
  const std::vector<DataLane>& lanes = readouts_[node].lanes;
  for (std::size_t i = 0; i < lanes.size(); ++i) {
    if (lanes[i].data && lanes[i].rail == rail) return lane_of(node, i);
  }
  return {};
}

// Over one lane at least.
bool ReadoutLinks::may_answer(NodeId node) const {
  for (std::size_t i = 0; i < lanes(node); ++i) {
    if (!waits_for_grant(lane_of(node, i))) return true;
  }
  return false;
}

void ReadoutLinks::send_grants() {
  for (std::size_t rail = 0; rail < grants_.size(); ++rail) {
    for (std::size_t i = 0; i < grants_[rail].unsent().size();) {
      const auto lane = lane_over(rail, grants_[rail].unsent()[i]);
      FANIN_ASSERT(lane); // grants end with their lane
      ControlBatcher& grants = lane_at(*lane).grants;
      if (!grants.roomy()) {
        ++i;
        continue;
      }
      grants.append(grant_for(*lane)); // it is no longer among them
      const std::pair entry{lane->readout, lane->index};
      if (std::ranges::find(granting_, entry) == granting_.end()) granting_.push_back(entry);
    }
  }
  std::erase_if(granting_, [this](const auto& entry) {
    std::vector<DataLane>& lanes = readouts_[entry.first].lanes;
    if (entry.second >= lanes.size()) return true; // of an earlier connection
    lanes[entry.second].grants.flush();
    return lanes[entry.second].grants.is_idle();
  });
}

void ReadoutLinks::report(ControlClient& control) {
  if (!changed_) return;
  changed_ = false;
  for (std::size_t i = 0; i < readouts_.size(); ++i) {
    Readout& readout = readouts_[i];
    wire::Reached& reported = readout.reported;
    const bool yes = readout.complete() && (system_.protocol == Protocol::push ||
                                            readout.requests_to == readout.incarnation);
    const bool same = yes ? reported.yes != 0 && reported.connection == readout.connection &&
                                reported.incarnation == readout.incarnation
                          : reported.yes == 0;
    if (same) continue;
    if (!control.roomy()) {
      changed_ = true;
      return;
    }
    if (yes) {
      reported = {static_cast<NodeId>(i), 1, readout.incarnation, readout.connection, 0};
    } else {
      reported.yes = 0;
      reported.lane = readout.lane_lost;
    }
    control.send(reported);
  }
}

} // namespace fanin::builder
