// A readout unit's connections to builder units: for data, and in the pull flow for requests. What
// is to be sent to a builder unit goes in the order of assignment, and again from the start over a
// new connection; a rail that is lost is followed by the next one. With shaping a schedule says
// which builder unit gets its next data, and how many.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "fanin/base/log_limiter.hpp"
#include "fanin/builder/control/control_client.hpp"
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

  // A builder unit is there, at these addresses (rails.hpp). False: they make no sense.
  [[nodiscard]] bool up(NodeId builder, Incarnation incarnation, std::string_view rails);
  // That incarnation is gone.
  void down(NodeId builder, Incarnation incarnation);
  // The builder unit hears nothing of this node: it takes the next rail.
  void reconnect(const wire::Reconnect& reconnect);
  // Sends a batch behind those that were assigned before.
  void send(RetainedBatch& batch);

  // Payload and messages that were sent.
  [[nodiscard]] std::uint64_t bytes() const { return bytes_; }
  [[nodiscard]] std::uint64_t messages() const { return messages_; }

  // Of shaping; null: there is none.
  [[nodiscard]] const shaping::Schedule* schedule() const {
    return schedule_ ? &*schedule_ : nullptr;
  }

  void on_event(net::Transport& transport, net::Event& event) override;

private:
  enum class Stage : std::uint8_t {
    closed,
    connecting, // or connected, and the hello has not left
    ready
  };
  struct Connection {
    net::Link link;
    Stage stage = Stage::closed;
  };
  struct Builder {
    NodeId node = 0;
    Incarnation incarnation = 0; // 0: down
    std::vector<net::Url> rails;
    std::size_t rail = 0; // in use, or the next to be tried
    Connection data;
    Connection request; // pull only
    std::uint32_t connection = 0; // counts them
    bool unreachable_logged = false;
    LogLimiter lines; // of its connections, which it can end as often as it likes
    std::deque<EventNumber> queue; // batches to send, oldest assignment first
    std::unique_ptr<net::Timer> retry;
  };
  struct Owner { // of a connection
    NodeId builder = 0;
    bool data = false;
  };

  void connect(Builder& builder);
  [[nodiscard]] bool open(Builder& builder, Connection& connection, net::Transport& transport);
  void close(Connection& connection);
  void close_both(Builder& builder);
  void disconnect(Builder& builder);
  void change_rail(Builder& builder);
  void say_of(Builder& builder, LogLevel level, std::string_view text);
  void retry(Builder& builder, Duration after);
  void introduce(Builder& builder, Connection& connection);
  void send_all(Builder& builder);
  void pump(Builder& builder);
  [[nodiscard]] bool send_blocks(Builder& builder, RetainedBatch& batch);
  [[nodiscard]] bool send_block(Builder& builder, const DataBlock& block);
  [[nodiscard]] RetainedBatch* next_batch(Builder& builder);
  void set_waiting(Builder& builder);
  void send_carriers();
  [[nodiscard]] bool send_carrier(Builder& builder);
  [[nodiscard]] bool on_grant(const Builder& builder, const wire::Grant& grant);
  void on_page(Builder& builder, Connection& connection, const memory::View& page);
  void on_closed(Builder& builder, Connection& connection, net::CloseReason reason);

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
  std::optional<shaping::Schedule> schedule_;
  net::Timer schedule_tick_{[this] { send_carriers(); }};
  std::uint64_t bytes_ = 0;
  std::uint64_t messages_ = 0;
};

} // namespace fanin::builder
