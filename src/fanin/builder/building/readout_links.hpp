// A builder unit's connections from readout units: for data, and in the pull flow for requests.
// With shaping it grants over them what readout units may send.
// Says to the event manager which readout units reach this node.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "fanin/base/log_limiter.hpp"
#include "fanin/builder/control/control_client.hpp"
#include "fanin/builder/control/unidentified_links.hpp"
#include "fanin/builder/shaping/grants.hpp"
#include "fanin/builder/system.hpp"

namespace fanin::builder {

// Thread: its loop.
class ReadoutLinks final : public net::Handler {
public:
  // Whose blocks come over them. Called on the loop.
  class Receiver {
  public:
    virtual ~Receiver() = default;
    // A message over the data connection of this readout unit.
    virtual void block(NodeId readout, const net::Event& event) = 0;
    // It has a new data connection, over which it sends all it owes from the beginning.
    virtual void data_opened(NodeId readout) = 0;
    // A data connection has come or ended.
    virtual void connections_changed() = 0;
    // It can be asked for batches: for all that it owes, from the beginning.
    virtual void requests_opened(NodeId readout) = 0;
  };

  // `system` and `receiver` must outlive it.
  ReadoutLinks(const System& system, NodeEnvironment environment, Receiver& receiver);
  ~ReadoutLinks() override;

  // Listens on all of these rails (rails.hpp); gives those that work. Errors: none does.
  [[nodiscard]] Result<std::vector<net::Url>> listen(std::span<const net::Url> rails,
                                                     memory::PagePool& receive_pool);
  // Connections of this run and to this incarnation are welcome; those before are closed.
  void begin(RunNumber run, Incarnation incarnation);
  // None is.
  void end();

  // Of its data connection; 0: there is none.
  [[nodiscard]] Incarnation connected(NodeId readout) const { return readouts_[readout].connected; }
  // Whether a part of a message has come over its data connection since it was asked last.
  [[nodiscard]] bool gets_on(NodeId readout) {
    Readout& one = readouts_[readout];
    const std::uint64_t before = std::exchange(one.unfinished, one.data.unfinished());
    return one.unfinished != before;
  }
  // It sent what no good readout unit sends.
  void hang_up(NodeId readout, std::string_view why);
  // It has sent a full carrier.
  void carrier_filled(NodeId readout) {
    if (grants_) grants_->carrier_filled(readout);
  }
  // Both of its connections are of no use.
  void drop(NodeId readout);

  // Pull: asks each readout unit for this batch, or one, when the earlier ones are asked for.
  void request(EventNumber batch);
  void request(NodeId readout, EventNumber batch) {
    readouts_[readout].to_request.push_back(batch);
    requests_pending_ = true;
  }
  // Once a turn: sends requests, as long as readout units read. `member(NodeId)`: the incarnation
  // that takes part. `find(EventNumber)`: the assignment; none: nobody has to be asked any more.
  template <class Member, class Find>
  void send_requests(Member member, Find find);
  // Once a turn, before requests are sent, with shaping: what readout units may send from now on.
  // `owes(NodeId)`: whether data of it are missing.
  template <class Owes>
  void grant(Owes owes) {
    if (!grants_) return;
    grants_->update(environment_.loop->now(), owes);
    grant_tick_.set(*environment_.loop, grants_->wake());
  }
  // Once a turn, behind requests: tells readout units what they are granted.
  void send_grants();
  // It is connected, and waits for its grant: what is not granted is not owed.
  [[nodiscard]] bool waits_for_grant(NodeId readout) const {
    return grants_ && connected(readout) != 0 && !grants_->may_send(readout);
  }
  // Of shaping; null: there is none.
  [[nodiscard]] const shaping::Grants* grants() const { return grants_ ? &*grants_ : nullptr; }
  // Once a turn: says which readout units reach this node, as far as that has changed.
  void report(ControlClient& control);

  // Connections that meant another run or incarnation.
  [[nodiscard]] std::uint64_t stale() const { return stale_; }

  void on_event(net::Transport& transport, net::Event& event) override;

private:
  struct Listener {
    net::Transport* transport = nullptr;
    net::ListenerId id = net::ListenerId::none;
  };
  struct Readout {
    Incarnation connected = 0;
    std::uint32_t connection = 0; // the latest one that said hello
    wire::Reached reported; // to the event manager
    net::Link data;
    std::uint64_t unfinished = 0; // bytes of a message, when gets_on() was asked
    ControlBatcher grants; // over `data`
    ControlBatcher requests; // pull
    Incarnation requests_to = 0;
    std::deque<EventNumber> to_request; // batches
  };
  struct Owner { // of a connection that has said hello
    NodeId readout = 0;
    wire::Role role{}; // data or request
  };

  void on_hello(net::Link link, const memory::View& page);
  void on_closed(net::Link link);
  [[nodiscard]] static std::optional<wire::Hello> hello_in(const memory::View& page);
  [[nodiscard]] std::string wrong_with(const wire::Hello& hello) const;
  void hang_up(net::Link link, std::string_view why);
  void disconnect_data(Readout& readout);
  void disconnect_requests(Readout& readout);
  [[nodiscard]] wire::Grant grant_for(NodeId readout);

  const System& system_;
  const std::uint64_t digest_; // of system_
  NodeEnvironment environment_;
  Receiver& receiver_;
  std::vector<Listener> listeners_; // one a rail
  RunNumber run_ = 0;
  Incarnation incarnation_ = 0; // of this node; 0: nobody is welcome
  std::vector<Readout> readouts_;
  UnidentifiedLinks unidentified_;
  std::map<net::Link, Owner> owners_;
  std::optional<shaping::Grants> grants_;
  net::Timer grant_tick_; // wakes the loop
  std::vector<NodeId> granting_; // their grants may not have left
  bool changed_ = false; // since report() said everything
  bool requests_pending_ = false;
  std::uint64_t stale_ = 0;
  LogLimiter refusals_; // of peers that are cut off
};

template <class Member, class Find>
void ReadoutLinks::send_requests(Member member, Find find) {
  if (!requests_pending_) return;
  requests_pending_ = false;
  for (std::size_t i = 0; i < readouts_.size(); ++i) {
    Readout& readout = readouts_[i];
    const auto node = static_cast<NodeId>(i);
    if (!readout.requests) continue;
    if (waits_for_grant(node)) { // it is asked when it may answer
      requests_pending_ = requests_pending_ || !readout.to_request.empty();
      continue;
    }
    if (readout.requests_to == member(node)) {
      while (!readout.to_request.empty() && readout.requests.roomy()) {
        const std::optional<wire::Assign> assign = find(readout.to_request.front());
        readout.to_request.pop_front();
        if (!assign) continue;
        if (grants_ && grants_->unsaid(node) && readout.requests_to == readout.connected) {
          readout.requests.append(grant_for(node)); // the first one comes with the request
        }
        readout.requests.append(*assign);
      }
      readout.requests.flush();
      if (readout.requests.failed()) disconnect_requests(readout);
    }
    if (!readout.to_request.empty() || !readout.requests.is_idle()) requests_pending_ = true;
  }
}

} // namespace fanin::builder
