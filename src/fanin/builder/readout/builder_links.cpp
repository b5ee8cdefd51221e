#include "fanin/builder/readout/builder_links.hpp"

#include <algorithm>
#include <array>
#include <utility>

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
  if (system.shaping.on()) {
    schedule_.emplace(system.shaping, system.readout_units.size(), builders_.size(), node,
                      environment_.session + node);
  }
  for (std::size_t i = 0; i < builders_.size(); ++i) {
    Builder& builder = builders_[i];
    builder.node = static_cast<NodeId>(i);
    builder.retry = std::make_unique<net::Timer>([this, &builder] {
      close_both(builder);
      connect(builder);
    });
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
  builder.rail = (node_ + node) % builder.rails.size();
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
  close_both(builder);
  builder.retry->cancel();
  change_rail(builder);
  connect(builder);
}

// --- connections ---------------------------------------------------------------------------------

void BuilderLinks::close(Connection& connection) {
  owners_.erase(connection.link);
  connection.link.close(true);
  connection.stage = Stage::closed;
}

void BuilderLinks::close_both(Builder& builder) {
  close(builder.data);
  close(builder.request);
  if (schedule_) schedule_->closed(builder.node);
}

void BuilderLinks::disconnect(Builder& builder) {
  close_both(builder);
  builder.incarnation = 0;
  builder.queue.clear();
  builder.retry->cancel();
  batches_.forget_builder(builder.node);
}

void BuilderLinks::retry(Builder& builder, Duration after) {
  builder.retry->start(*environment_.loop, environment_.loop->now() + after);
}

void BuilderLinks::change_rail(Builder& builder) {
  if (builder.rails.size() == 1) return;
  const std::size_t lost = std::exchange(builder.rail, (builder.rail + 1) % builder.rails.size());
  say_of(builder, LogLevel::warning,
         fmt::format("{} is closed, trying {} next", builder.rails[lost].text(),
                     builder.rails[builder.rail].text()));
}

void BuilderLinks::say_of(Builder& builder, LogLevel level, std::string_view text) {
  builder.lines.say(environment_.log, environment_.loop->now(), level, text);
}

void BuilderLinks::connect(Builder& builder) {
  ++builder.connection;
  const auto transport = environment_.transports->find(builder.rails[builder.rail]);
  if (!transport) say_of(builder, LogLevel::error, transport.error().text);
  const bool pull = system_.protocol == Protocol::pull;
  bool opened = transport && open(builder, builder.data, **transport);
  if (transport && pull && !open(builder, builder.request, **transport)) opened = false;
  if (opened) return;
  change_rail(builder);
  retry(builder, retry_after);
}

bool BuilderLinks::open(Builder& builder, Connection& connection, net::Transport& transport) {
  const bool data = &connection == &builder.data;
  const auto id = transport.connect(
      builder.rails[builder.rail],
      {.receive_pool = environment_.control_pool, .handler = this, .low_latency = !data});
  if (!id) {
    say_of(builder, LogLevel::error, id.error().text);
    return false;
  }
  connection.link = {&transport, *id};
  connection.stage = Stage::connecting;
  owners_[connection.link] = {builder.node, data};
  return true;
}

void BuilderLinks::on_event(net::Transport& transport, net::Event& event) {
  const auto owner = owners_.find({&transport, event.connection});
  if (owner == owners_.end()) return;
  Builder& builder = builders_[owner->second.builder];
  const bool data = owner->second.data;
  Connection& connection = data ? builder.data : builder.request;
  switch (event.kind) {
  case net::EventKind::connected: introduce(builder, connection); break;
  case net::EventKind::message: on_page(builder, connection, event.message); break;
  case net::EventKind::writable:
    if (connection.stage == Stage::ready) {
      if (data && schedule_) schedule_->set_full(builder.node, false);
      pump(builder);
    } else {
      introduce(builder, connection);
    }
    break;
  case net::EventKind::closed: on_closed(builder, connection, event.reason); break;
  case net::EventKind::accepted: break;
  }
}

// What a builder unit says: requests (pull) over the connection for them, grants (shaping) over
// both.
void BuilderLinks::on_page(Builder& builder, Connection& connection, const memory::View& page) {
  const bool data = &connection == &builder.data;
  const bool good = for_each_message(page.bytes(), [&](wire::MessageType type,
                                                       std::span<const std::byte> body) {
    wire::MessageReader reader{body};
    if (type == wire::MessageType::grant) {
      wire::Grant grant;
      return reader.read(grant) && on_grant(builder, grant);
    }
    wire::Assign assign;
    return type == wire::MessageType::assign && !data && reader.read(assign) && on_request_(assign);
  });
  if (!good) {
    say_of(builder, LogLevel::error,
           fmt::format("{}: sent an invalid request", connection.link.peer()));
    close(connection);
    if (data && schedule_) schedule_->closed(builder.node);
  }
  if (schedule_) send_carriers();
}

// False: it is invalid. One that means another connection is stale.
bool BuilderLinks::on_grant(const Builder& builder, const wire::Grant& grant) {
  if (!schedule_) return false;
  const bool current = grant.readout_incarnation == incarnation_ &&
                       grant.builder_incarnation == builder.incarnation &&
                       grant.connection == builder.connection;
  return !current || schedule_->granted(builder.node, grant.bytes);
}

void BuilderLinks::on_closed(Builder& builder, Connection& connection, net::CloseReason reason) {
  if (connection.stage != Stage::ready && !std::exchange(builder.unreachable_logged, true)) {
    environment_.log(LogLevel::warning,
                     fmt::format("cannot reach builder unit '{}' at {}: {}; trying again",
                                 system_.builder_units[builder.node],
                                 builder.rails[builder.rail].text(), name(reason)));
  }
  owners_.erase(connection.link);
  if (schedule_ && &connection == &builder.data) schedule_->closed(builder.node);
  connection = {};
  if (builder.incarnation == 0 || builder.retry->active()) return;
  change_rail(builder);
  retry(builder, reconnect_after);
}

// Says hello; the data follow it. Again when the network is writable if it does not take that now.
void BuilderLinks::introduce(Builder& builder, Connection& connection) {
  const bool data = &connection == &builder.data;
  wire::Hello hello;
  hello.role = data ? wire::Role::data : wire::Role::request;
  hello.node = node_;
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
  if (!data || connection.stage != Stage::ready) return;
  if (schedule_) schedule_->opened(builder.node, builder.rail);
  send_all(builder);
}

// --- data ----------------------------------------------------------------------------------------

// Again from the start: what was on its way may be lost.
void BuilderLinks::send_all(Builder& builder) {
  builder.queue.clear();
  batches_.for_each_of(builder.node, builder.incarnation, [&](RetainedBatch& batch) {
    batch.next_block = 0;
    builder.queue.push_back(batch.range.first);
  });
  pump(builder);
}

void BuilderLinks::send(RetainedBatch& batch) {
  batch.next_block = 0;
  Builder& builder = builders_[batch.builder];
  if (builder.incarnation != batch.builder_incarnation) return; // died meanwhile: reassigned soon
  builder.queue.push_back(batch.range.first);
  pump(builder);
}

// Sends what is assigned to a builder unit, oldest first, until its link takes no more.
void BuilderLinks::pump(Builder& builder) {
  if (schedule_) {
    set_waiting(builder);
    send_carriers();
    return;
  }
  while (builder.data.stage == Stage::ready && !builder.queue.empty()) {
    RetainedBatch* const batch = batches_.find(builder.queue.front());
    // Null, or another builder unit's: cleared, or assigned to another meanwhile.
    if (batch != nullptr && batch->builder == builder.node && !send_blocks(builder, *batch)) return;
    builder.queue.pop_front();
  }
}

// False: not all of them could be sent now.
bool BuilderLinks::send_blocks(Builder& builder, RetainedBatch& batch) {
  while (batch.next_block < batch.blocks.size()) {
    if (!send_block(builder, batch.blocks[batch.next_block])) return false;
    ++batch.next_block;
  }
  return true;
}

// False: it could not be sent now.
bool BuilderLinks::send_block(Builder& builder, const DataBlock& block) {
  const std::array<memory::View, 2> extents{block.head, block.payload};
  const auto outcome =
      builder.data.link.send(std::span{extents}.first(block.payload.size == 0 ? 1 : 2));
  switch (outcome) {
  case net::SendOutcome::accepted: break;
  case net::SendOutcome::backpressure: return false; // `writable` follows
  case net::SendOutcome::closed: return false; // `closed` follows
  case net::SendOutcome::too_large:
    say_of(builder, LogLevel::error,
           fmt::format("{}: takes smaller messages than a builder unit of this configuration; "
                       "connection closed",
                       builder.data.link.peer()));
    close(builder.data);
    if (schedule_) schedule_->closed(builder.node);
    retry(builder, retry_after);
    return false;
  }
  bytes_ += block.payload.size;
  ++messages_;
  return true;
}

// --- shaping -------------------------------------------------------------------------------------

// The batch whose blocks are to be sent next; null: there is none.
RetainedBatch* BuilderLinks::next_batch(Builder& builder) {
  for (; !builder.queue.empty(); builder.queue.pop_front()) {
    RetainedBatch* const batch = batches_.find(builder.queue.front());
    const bool its = batch != nullptr && batch->builder == builder.node;
    if (its && batch->next_block < batch->blocks.size()) return batch;
  }
  return nullptr;
}

void BuilderLinks::set_waiting(Builder& builder) {
  const bool ready = builder.data.stage == Stage::ready;
  const RetainedBatch* const batch = ready ? next_batch(builder) : nullptr;
  schedule_->set_waiting(builder.node,
                         batch == nullptr ? 0 : bytes_of(batch->blocks[batch->next_block]));
}

// One carrier after the other, to whom the schedule says.
void BuilderLinks::send_carriers() {
  const Time now = environment_.loop->now();
  while (const auto node = schedule_->next(now)) {
    if (send_carrier(builders_[*node])) schedule_->carried(*node, now);
  }
  schedule_tick_.set(*environment_.loop, schedule_->wake());
}

// Blocks for this builder unit, as far as they fit into one carrier and are granted. False: none.
bool BuilderLinks::send_carrier(Builder& builder) {
  const std::uint64_t most =
      std::min<std::uint64_t>(system_.shaping.carrier, schedule_->room(builder.node));
  std::uint64_t room = most;
  while (RetainedBatch* const batch = next_batch(builder)) {
    const DataBlock& block = batch->blocks[batch->next_block];
    if (bytes_of(block) > room) break;
    if (!send_block(builder, block)) {
      schedule_->set_full(builder.node, true);
      break;
    }
    ++batch->next_block;
    room -= bytes_of(block);
    schedule_->sent(builder.node, bytes_of(block), block.fills_carrier);
    if (block.fills_carrier) break;
  }
  if (next_batch(builder) == nullptr) batches_.begin_carrier(builder.node);
  set_waiting(builder);
  return room != most;
}

} // namespace fanin::builder
