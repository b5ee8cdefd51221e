#include "fanin/builder/readout/builder_links.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include <fmt/ranges.h>

#include "fanin/base/assert.hpp"
#include "fanin/builder/control/control_batcher.hpp"
#include "fanin/builder/rails.hpp"

namespace fanin::builder {

namespace {
constexpr Duration reconnect_after = std::chrono::milliseconds{20};
constexpr Duration retry_after = std::chrono::milliseconds{500}; // when there is no descriptor

std::uint64_t bytes_of(const DataBlock& block) {
  return std::uint64_t{block.head.size} + block.payload.size;
}
} // namespace

BuilderLinks::BuilderLinks(const System& system, NodeId node, NodeEnvironment environment,
                           RetainedBatches& batches, OnRequest on_request)
    : system_(system),
      digest_(system.digest()),
      node_(node),
      environment_(std::move(environment)),
      batches_(batches),
      on_request_(std::move(on_request)),
      builders_(system.builder_units.size()) {
  for (std::size_t rail = 0; system.shaping.on() && rail < system.rails; ++rail) {
    schedules_.emplace_back(system.shaping.per_rail(system.rails), system.readout_units.size(),
                            builders_.size(), node, environment_.session + node + rail);
  }
  for (std::size_t i = 0; i < builders_.size(); ++i) {
    Builder& builder = builders_[i];
    builder.node = static_cast<NodeId>(i);
    builder.retry = std::make_unique<net::Timer>([this, &builder] {
      close_all(builder);
      connect(builder);
    });
    builder.next_trial = std::make_unique<net::Timer>([this, &builder] { try_rail(builder); });
  }
}

BuilderLinks::~BuilderLinks() { end(); }

void BuilderLinks::begin(RunNumber run, Incarnation incarnation) {
  end();
  run_ = run;
  incarnation_ = incarnation;
}

void BuilderLinks::end() {
  for (Builder& builder : builders_) disconnect(builder);
}

// --- which builder units there are ---------------------------------------------------------------

bool BuilderLinks::up(NodeId node, Incarnation incarnation, std::string_view rails) {
  auto parsed = parse_rails(rails);
  if (node >= builders_.size() || !parsed) return false;
  Builder& builder = builders_[node];
  disconnect(builder);
  builder.incarnation = incarnation;
  builder.unreachable_logged = false;
  builder.rails = std::move(*parsed);
  if (builder.rails.size() > system_.rails) builder.rails.resize(system_.rails);
  builder.choice =
      RailChoice{builder.rails.size(), std::size_t{node_} + node, system_.lanes(node_)};
  connect(builder);
  return true;
}

void BuilderLinks::down(NodeId node, Incarnation incarnation) {
  if (builders_[node].incarnation == incarnation) disconnect(builders_[node]);
}

void BuilderLinks::reconnect(const wire::Reconnect& reconnect) {
  Builder& builder = builders_[reconnect.builder];
  const bool this_one = reconnect.connection == 0 || reconnect.connection == builder.connection;
  if (builder.incarnation != reconnect.incarnation || builder.incarnation == 0 || !this_one) return;
  bool any = false;
  for (std::size_t i = 0; i < builder.lanes.size(); ++i) {
    const DataLane& lane = builder.lanes[i];
    const bool dead = reconnect.connection == 0 ? lane.stage != Stage::ready : i == reconnect.lane;
    if (!dead) continue;
    lose(builder, lane.rail);
    any = true;
  }
  if (!any) lose(builder, builder.lanes.front().rail); // nothing says which one it is
  close_all(builder);
  builder.retry->cancel();
  connect(builder);
}

// --- connections ---------------------------------------------------------------------------------

void BuilderLinks::close(Connection& connection) {
  owners_.erase(connection.link);
  connection.link.close(true);
  connection.stage = Stage::closed;
}

void BuilderLinks::close_lane(Builder& builder, DataLane& lane) {
  close(lane);
  if (!schedules_.empty()) schedules_[lane.rail].closed(builder.node);
}

void BuilderLinks::close_all(Builder& builder) {
  for (DataLane& lane : builder.lanes) close_lane(builder, lane);
  close(builder.request);
}

void BuilderLinks::disconnect(Builder& builder) {
  close_all(builder);
  close(builder.trial);
  builder.incarnation = 0;
  builder.lanes.clear();
  builder.retry->cancel();
  builder.next_trial->cancel();
  batches_.forget_builder(builder.node);
}

void BuilderLinks::retry(Builder& builder, Duration after) {
  builder.retry->start(*environment_.loop, environment_.loop->now() + after);
}

void BuilderLinks::log_of(Builder& builder, LogLevel level, std::string_view text) {
  builder.lines.write(environment_.log, environment_.loop->now(), level, text);
}

void BuilderLinks::connect(Builder& builder) {
  ++builder.connection;
  const std::vector<std::size_t> rails = builder.choice.choose();
  builder.lanes.clear();
  builder.lanes.resize(rails.size());
  bool opened = true;
  for (std::size_t i = 0; i < rails.size(); ++i) {
    builder.lanes[i].rail = rails[i];
    opened = open({builder.node, Use::data, i}, rails[i]) && opened;
  }
  if (system_.protocol == Protocol::pull) {
    opened = open({builder.node, Use::request}, rails.front()) && opened;
  }
  if (!opened) retry(builder, retry_after);
  watch_rails(builder);
}

BuilderLinks::Connection& BuilderLinks::connection_of(Owner owner) {
  Builder& builder = builders_[owner.builder];
  switch (owner.use) {
  case Use::data: break;
  case Use::request: return builder.request;
  case Use::trial: return builder.trial;
  }
  return builder.lanes[owner.lane];
}

std::size_t BuilderLinks::rail_of(Owner owner) {
  const Builder& builder = builders_[owner.builder];
  if (owner.use == Use::trial) return builder.trial_rail;
  return builder.lanes[owner.use == Use::data ? owner.lane : 0].rail;
}

// False: that is impossible now, and the rail is left.
bool BuilderLinks::open(Owner owner, std::size_t rail) {
  Builder& builder = builders_[owner.builder];
  const net::Url& url = builder.rails[rail];
  const auto transport = environment_.transports->find(url);
  Result<net::ConnectionId> id = net::ConnectionId{};
  if (transport) {
    id = (*transport)
             ->connect(url, {.receive_pool = environment_.control_pool,
                             .handler = this,
                             .low_latency = owner.use != Use::data,
                             .urgent = owner.use != Use::data});
  }
  if (!transport || !id) {
    log_of(builder, LogLevel::error, transport ? id.error().text : transport.error().text);
    lose(builder, rail);
    return false;
  }
  Connection& connection = connection_of(owner);
  connection.link = {*transport, *id};
  connection.stage = Stage::connecting;
  owners_[connection.link] = owner;
  return true;
}

void BuilderLinks::on_event(net::Transport& transport, net::Event& event) {
  const auto found = owners_.find({&transport, event.connection});
  if (found == owners_.end()) return;
  const Owner owner = found->second;
  switch (event.kind) {
  case net::EventKind::connected:
    if (owner.use == Use::trial) return rail_is_back(builders_[owner.builder]);
    introduce(owner);
    break;
  case net::EventKind::message: on_page(owner, event.message); break;
  case net::EventKind::writable: on_writable(owner); break;
  case net::EventKind::closed: on_closed(owner, event.reason); break;
  case net::EventKind::accepted: break;
  }
}

void BuilderLinks::on_writable(Owner owner) {
  if (connection_of(owner).stage != Stage::ready) return introduce(owner);
  if (owner.use != Use::data) return;
  Builder& builder = builders_[owner.builder];
  if (!schedules_.empty()) schedules_[rail_of(owner)].set_full(builder.node, false);
  pump(builder, owner.lane);
}

// What a builder unit says: requests (pull) over the connection for them, grants (shaping) over
// both.
void BuilderLinks::on_page(Owner owner, const memory::View& page) {
  Builder& builder = builders_[owner.builder];
  const bool good =
      for_each_message(page.bytes(), [&](wire::MessageType type, std::span<const std::byte> body) {
        wire::MessageReader reader{body};
        if (type == wire::MessageType::grant) {
          wire::Grant grant;
          return reader.read(grant) && on_grant(builder, grant);
        }
        wire::Assign assign;
        return type == wire::MessageType::assign && owner.use == Use::request &&
               reader.read(assign) && assign.builder == builder.node &&
               assign.builder_incarnation == builder.incarnation && on_request_(assign);
      });
  if (!good) {
    log_of(builder, LogLevel::error,
           fmt::format("{}: sent an invalid request", connection_of(owner).link.peer()));
    if (owner.use == Use::data) {
      close_lane(builder, builder.lanes[owner.lane]);
    } else {
      close(connection_of(owner));
    }
  }
  if (!schedules_.empty()) send_carriers();
}

// False: it is invalid. One that means another connection is stale.
bool BuilderLinks::on_grant(const Builder& builder, const wire::Grant& grant) {
  if (schedules_.empty()) return false;
  const bool current = grant.readout_incarnation == incarnation_ &&
                       grant.builder_incarnation == builder.incarnation &&
                       grant.connection == builder.connection;
  if (!current) return true;
  return grant.lane < builder.lanes.size() &&
         schedules_[builder.lanes[grant.lane].rail].granted(builder.node, grant.bytes);
}

void BuilderLinks::on_closed(Owner owner, net::CloseReason reason) {
  Builder& builder = builders_[owner.builder];
  Connection& connection = connection_of(owner);
  const std::size_t rail = rail_of(owner);
  owners_.erase(connection.link);
  const Stage stage = std::exchange(connection.stage, Stage::closed);
  connection.link = {};
  if (owner.use == Use::trial) return; // again when it is time
  if (stage != Stage::ready && !std::exchange(builder.unreachable_logged, true)) {
    environment_.log(LogLevel::warning,
                     fmt::format("cannot reach builder unit '{}' at {}: {}; trying again",
                                 system_.builder_units[builder.node], builder.rails[rail].text(),
                                 name(reason)));
  }
  if (!schedules_.empty() && owner.use == Use::data) schedules_[rail].closed(builder.node);
  lose(builder, rail);
  if (!builder.retry->active()) retry(builder, reconnect_after);
}

// Says hello; the data follow it. Again when the network is writable if it does not take that now.
void BuilderLinks::introduce(Owner owner) {
  if (owner.use == Use::trial) return;
  Builder& builder = builders_[owner.builder];
  Connection& connection = connection_of(owner);
  wire::Hello hello;
  hello.role = owner.use == Use::data ? wire::Role::data : wire::Role::request;
  hello.node = node_;
  hello.lane = static_cast<std::uint8_t>(owner.lane);
  hello.lanes = static_cast<std::uint8_t>(builder.lanes.size());
  hello.rail = static_cast<std::uint8_t>(rail_of(owner));
  hello.system_digest = digest_;
  hello.run = run_;
  hello.incarnation = incarnation_;
  hello.peer_incarnation = builder.incarnation;
  hello.connection = builder.connection;
  ControlBatcher first{connection.link, *environment_.control_pool};
  first.append(hello);
  first.flush();
  if (first.failed() && !builder.retry->active()) retry(builder, reconnect_after); // no page for it
  connection.stage = first.sent() && !first.failed() ? Stage::ready : Stage::connecting;
  if (owner.use != Use::data || connection.stage != Stage::ready) return;
  if (!schedules_.empty()) schedules_[rail_of(owner)].opened(builder.node);
  send_all(builder, owner.lane);
}

// --- rails ---------------------------------------------------------------------------------------

void BuilderLinks::lose(Builder& builder, std::size_t rail) {
  if (builder.rails.size() == 1 || builder.choice.is_lost(rail)) return;
  builder.choice.lost(rail, environment_.loop->now());
  std::vector<std::string> left;
  for (std::size_t i = 0; i < builder.rails.size(); ++i) {
    if (!builder.choice.is_lost(i)) left.push_back(builder.rails[i].text());
  }
  log_of(builder, LogLevel::warning,
         fmt::format("{} is closed, {}", builder.rails[rail].text(),
                     left.empty() ? "as all others; trying them again"
                                  : fmt::format("continuing over {}", fmt::join(left, " and "))));
}

void BuilderLinks::watch_rails(Builder& builder) {
  builder.next_trial->set(*environment_.loop, builder.choice.next_try());
}

// A rail that was lost is used again when a connection over it can be made, which carries nothing.
void BuilderLinks::try_rail(Builder& builder) {
  close(builder.trial); // of which nothing was heard
  builder.trial_rail = builder.choice.to_try();
  builder.choice.tried(builder.trial_rail, environment_.loop->now());
  (void)open({builder.node, Use::trial}, builder.trial_rail);
  watch_rails(builder);
}

void BuilderLinks::rail_is_back(Builder& builder) {
  close(builder.trial);
  builder.choice.back(builder.trial_rail, environment_.loop->now());
  log_of(builder, LogLevel::info,
         fmt::format("{} is back", builder.rails[builder.trial_rail].text()));
  close_all(builder);
  builder.retry->cancel();
  connect(builder);
}

// --- data ----------------------------------------------------------------------------------------

// Again from the start: what was on its way may be lost.
void BuilderLinks::send_all(Builder& builder, std::size_t lane) {
  std::deque<EventNumber>& queue = builder.lanes[lane].queue;
  queue.clear();
  batches_.for_each_of(builder.node, builder.incarnation, [&](RetainedBatch& batch) {
    batch.next_block[lane] = 0;
    queue.push_back(batch.range.first);
  });
  pump(builder, lane);
}

void BuilderLinks::send(RetainedBatch& batch) {
  batch.next_block = {};
  Builder& builder = builders_[batch.builder];
  if (builder.incarnation != batch.builder_incarnation) return; // died meanwhile: reassigned soon
  for (std::size_t i = 0; i < builder.lanes.size(); ++i) {
    builder.lanes[i].queue.push_back(batch.range.first);
    pump(builder, i);
  }
}

// Sends what is assigned to a builder unit, oldest first, until its link takes no more.
void BuilderLinks::pump(Builder& builder, std::size_t index) {
  const Lane lane = lane_of(builder, index);
  if (!schedules_.empty()) {
    set_waiting(builder, lane);
    send_carriers();
    return;
  }
  DataLane& to = builder.lanes[index];
  while (to.stage == Stage::ready && !to.queue.empty()) {
    RetainedBatch* const batch = batches_.find(to.queue.front());
    // Null, or another builder unit's: cleared, or assigned to another meanwhile.
    const bool its = batch != nullptr && batch->builder == builder.node;
    if (its && !send_blocks(builder, lane, *batch)) return;
    to.queue.pop_front();
  }
}

// False: not all of them could be sent now.
bool BuilderLinks::send_blocks(Builder& builder, const Lane& lane, RetainedBatch& batch) {
  while (const DataBlock* const block = batch.next_of(lane)) {
    if (!send_block(builder, builder.lanes[lane.index], *block)) return false;
    ++batch.next_block[lane.index];
  }
  return true;
}

// False: it could not be sent now.
bool BuilderLinks::send_block(Builder& builder, DataLane& lane, const DataBlock& block) {
  const std::array<memory::View, 2> extents{block.head, block.payload};
  const auto outcome = lane.link.send(std::span{extents}.first(block.payload.size == 0 ? 1 : 2));
  switch (outcome) {
  case net::SendOutcome::accepted: break;
  case net::SendOutcome::backpressure: return false; // `writable` follows
  case net::SendOutcome::closed: return false; // `closed` follows
  case net::SendOutcome::too_large:
    log_of(builder, LogLevel::error,
           fmt::format("{}: takes smaller messages than a builder unit of this configuration; "
                       "connection closed",
                       lane.link.peer()));
    close_lane(builder, lane);
    retry(builder, retry_after);
    return false;
  }
  bytes_ += block.payload.size;
  ++messages_;
  return true;
}

// --- shaping -------------------------------------------------------------------------------------

// The batch whose blocks are to be sent next; null: there is none.
RetainedBatch* BuilderLinks::next_batch(Builder& builder, const Lane& lane) {
  std::deque<EventNumber>& queue = builder.lanes[lane.index].queue;
  for (; !queue.empty(); queue.pop_front()) {
    RetainedBatch* const batch = batches_.find(queue.front());
    const bool its = batch != nullptr && batch->builder == builder.node;
    if (its && batch->next_of(lane) != nullptr) return batch;
  }
  return nullptr;
}

void BuilderLinks::set_waiting(Builder& builder, const Lane& lane) {
  const DataLane& to = builder.lanes[lane.index];
  RetainedBatch* const batch = to.stage == Stage::ready ? next_batch(builder, lane) : nullptr;
  schedules_[to.rail].set_waiting(builder.node,
                                  batch == nullptr ? 0 : bytes_of(*batch->next_of(lane)));
}

// One carrier after the other, to whom the schedules say.
void BuilderLinks::send_carriers() {
  const Time now = environment_.loop->now();
  Time wake = never;
  for (std::size_t rail = 0; rail < schedules_.size(); ++rail) {
    shaping::Schedule& schedule = schedules_[rail];
    while (const auto node = schedule.next(now)) {
      if (send_carrier(builders_[*node], rail)) schedule.carried(*node, now);
    }
    wake = std::min(wake, schedule.wake());
  }
  schedule_tick_.set(*environment_.loop, wake);
}

// Blocks for this builder unit, as far as they fit into one carrier and are granted. False: none.
bool BuilderLinks::send_carrier(Builder& builder, std::size_t rail) {
  const auto to = std::ranges::find(builder.lanes, rail, &DataLane::rail);
  FANIN_ASSERT(to != builder.lanes.end()); // the rail's schedule knows of a connection
  const Lane lane = lane_of(builder, static_cast<std::size_t>(to - builder.lanes.begin()));
  shaping::Schedule& schedule = schedules_[rail];
  const std::uint64_t most =
      std::min<std::uint64_t>(system_.shaping.carrier, schedule.room(builder.node));
  std::uint64_t room = most;
  while (RetainedBatch* const batch = next_batch(builder, lane)) {
    const DataBlock& block = *batch->next_of(lane);
    if (bytes_of(block) > room) break;
    if (!send_block(builder, *to, block)) {
      schedule.set_full(builder.node, true);
      break;
    }
    ++batch->next_block[lane.index];
    room -= bytes_of(block);
    schedule.sent(builder.node, bytes_of(block), block.fills_carrier);
    if (block.fills_carrier) break;
  }
  if (next_batch(builder, lane) == nullptr) batches_.begin_carrier(builder.node, lane);
  set_waiting(builder, lane);
  return room != most;
}

} // namespace fanin::builder
