// A readout unit's connections to builder units: for data one over each rail (lane.hpp), and in the
// pull flow one for requests. What is to be sent to a builder unit goes in the order of assignment,
// and again from the start over new connections. A rail that is lost is left out until it answers
// again. With shaping a schedule for each rail says which builder unit gets its next data, and how
// many.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "fanin/base/log_limiter.hpp"
#include "fanin/base/state.hpp"
#include "fanin/builder/control/control_client.hpp"
#include "fanin/builder/lane.hpp"
#include "fanin/builder/readout/rail_choice.hpp"
#include "fanin/builder/readout/retained_batches.hpp"
#include "fanin/builder/shaping/schedule.hpp"
#include "fanin/builder/system.hpp"

namespace fanin::builder {

// Thread: its loop.
class BuilderLinks final : public net::Handler {
public:
  // A builder unit asks for a batch (pull). False: it is invalid. Called on the loop.
  using OnRequest = std::function<bool(const wire::Assign&)>;

  // `system` and `batches` must outlive it.
  BuilderLinks(const System& system, NodeId node, NodeEnvironment environment,
               RetainedBatches& batches, OnRequest on_request);
  ~BuilderLinks() override;

  // Connections are made as this incarnation of the readout unit.
  void begin(RunNumber run, Incarnation incarnation);
  void end();

  // A builder unit takes part, at these addresses (rails.hpp). False: they are invalid.
  [[nodiscard]] bool up(NodeId builder, Incarnation incarnation, std::string_view rails);
  // That incarnation of the builder unit takes part no more.
  void down(NodeId builder, Incarnation incarnation);
  // The builder unit gets no data of this node over a rail: this node uses the other rails.
  void reconnect(const wire::Reconnect& reconnect);
  // Sends a batch behind those that were assigned before.
  void send(RetainedBatch& batch);

  // Payload and messages that were sent.
  [[nodiscard]] std::uint64_t bytes() const { return bytes_; }
  [[nodiscard]] std::uint64_t messages() const { return messages_; }

  // The schedules of shaping, one for each rail; without shaping none.
  [[nodiscard]] std::span<const shaping::Schedule> schedules() const { return schedules_; }

  void on_event(net::Transport& transport, net::Event& event) override;

private:
  enum class Stage : std::uint8_t {
    closed,
    connecting, // or connected, and the hello has not left
    ready
  };
  friend constexpr bool may_follow(Stage from, Stage to) {
    return to == Stage::closed ||
           (to == Stage::connecting ? from != Stage::ready : from == Stage::connecting);
  }
  struct Connection {
    net::Link link;
    CheckedState<Stage> stage = Stage::closed;
  };
  struct DataLane : Connection {
    std::size_t rail = 0;
    std::deque<EventNumber> queue; // batches to send, oldest assignment first
  };
  struct Builder {
    NodeId node = 0;
    Incarnation incarnation = 0; // 0: down
    std::vector<net::Url> rails;
    RailChoice choice; // of them
    std::vector<DataLane> lanes; // of the connection, or of the last one
    Connection request; // pull only, over the first lane's rail
    Connection trial; // of a rail that was lost
    std::size_t trial_rail = 0;
    std::uint32_t connection = 0; // counts them
    bool unreachable_logged = false;
    LogLimiter lines; // of its connections, which it can end as often as it likes
    std::unique_ptr<net::Timer> retry;
    std::unique_ptr<net::Timer> next_trial;
  };
  enum class Use : std::uint8_t { data, request, trial };
  struct Owner { // of a connection
    NodeId builder = 0;
    Use use{};
    std::size_t lane = 0; // data
  };

  void connect(Builder& builder);
  [[nodiscard]] bool open(Owner owner, std::size_t rail);
  [[nodiscard]] Connection& connection_of(Owner owner);
  [[nodiscard]] std::size_t rail_of(Owner owner);
  void close(Connection& connection);
  void close_lane(Builder& builder, DataLane& lane);
  void close_all(Builder& builder);
  void disconnect(Builder& builder);
  void lose(Builder& builder, std::size_t rail);
  void try_rail(Builder& builder);
  void rail_is_back(Builder& builder);
  void watch_rails(Builder& builder);
  void log_of(Builder& builder, LogLevel level, std::string_view text);
  void retry(Builder& builder, Duration after);
  void introduce(Owner owner);
  void on_page(Owner owner, const memory::View& page);
  void on_closed(Owner owner, net::CloseReason reason);
  void on_writable(Owner owner);

  [[nodiscard]] Lane lane_of(const Builder& builder, std::size_t index) const {
    return {node_, index, builder.lanes.size()};
  }
  void send_all(Builder& builder, std::size_t lane);
  void pump(Builder& builder, std::size_t lane);
  [[nodiscard]] bool send_blocks(Builder& builder, const Lane& lane, RetainedBatch& batch);
  [[nodiscard]] bool send_block(Builder& builder, DataLane& lane, const DataBlock& block);
  [[nodiscard]] RetainedBatch* next_batch(Builder& builder, const Lane& lane);
  void set_waiting(Builder& builder, const Lane& lane);
  void send_carriers();
  [[nodiscard]] bool send_carrier(Builder& builder, std::size_t rail);
  [[nodiscard]] bool on_grant(const Builder& builder, const wire::Grant& grant);

  const System& system_;
  const std::uint64_t digest_; // of system_
  NodeId node_;
  NodeEnvironment environment_;
  RetainedBatches& batches_;
  OnRequest on_request_;
  RunNumber run_ = 0;
  Incarnation incarnation_ = 0;
  std::vector<Builder> builders_;
  std::map<net::Link, Owner> owners_;
  std::vector<shaping::Schedule> schedules_; // by rail; empty: no shaping
  net::Timer schedule_tick_{[this] { send_carriers(); }};
  std::uint64_t bytes_ = 0;
  std::uint64_t messages_ = 0;
};

} // namespace fanin::builder
