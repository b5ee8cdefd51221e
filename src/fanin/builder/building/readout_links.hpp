// A builder unit's connections from readout units: for data one over each rail (lane.hpp), and in
// the pull flow one for requests. With shaping it tells readout units over them how much they may
// send. It tells the event manager which readout units reach this node.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "fanin/base/log_limiter.hpp"
#include "fanin/builder/control/control_batcher.hpp"
#include "fanin/builder/control/control_client.hpp"
#include "fanin/builder/control/unidentified_links.hpp"
#include "fanin/builder/lane.hpp"
#include "fanin/builder/rails.hpp"
#include "fanin/builder/shaping/grants.hpp"
#include "fanin/builder/system.hpp"

namespace fanin::builder {

// Thread: its loop.
class ReadoutLinks final : public net::Handler {
public:
  // Receives the blocks that come over the connections. Called on the loop.
  class Receiver {
  public:
    virtual ~Receiver() = default;
    // A message has come over this lane.
    virtual void block(const Lane& lane, const net::Event& event) = 0;
    // A lane is new: the readout unit sends all that the lane's sources owe from the beginning.
    virtual void data_opened(const Lane& lane) = 0;
    // A lane was closed, since something invalid came over it.
    virtual void data_refused(const Lane& lane) = 0;
    // A data connection has come or ended.
    virtual void connections_changed() = 0;
    // The readout unit can be asked for batches: for all that it owes, from the beginning.
    virtual void requests_opened(NodeId readout) = 0;
    // The incarnation that takes part, as the event manager has said; 0: none, or not known yet.
    [[nodiscard]] virtual Incarnation incarnation_of(NodeId readout) const = 0;
  };

  // `system` and `receiver` must outlive it.
  ReadoutLinks(const System& system, NodeEnvironment environment, Receiver& receiver);
  ~ReadoutLinks() override;

  // Listens on all of these rails (rails.hpp); returns those that work. Errors: none works.
  [[nodiscard]] Result<std::vector<net::Url>> listen(std::span<const net::Url> rails,
                                                     memory::PagePool& receive_pool);
  // Accepts connections of this run to this incarnation; closes earlier ones.
  void begin(RunNumber run, Incarnation incarnation);
  // Closes all connections, and accepts none.
  void end();

  // The incarnation of this readout unit that is connected by at least one lane; 0: none.
  [[nodiscard]] Incarnation connected(NodeId readout) const {
    return readouts_[readout].open > 0 ? readouts_[readout].incarnation : 0;
  }
  // The number of lanes of its data connection, or of its last one; 1 if it had none.
  [[nodiscard]] std::size_t lanes(NodeId readout) const {
    return std::max<std::size_t>(1, readouts_[readout].lanes.size());
  }
  // " over rail 2", where this node has several rails; otherwise empty.
  [[nodiscard]] std::string rail_text(const Lane& lane) const;
  // Whether a part of a message has come over this lane since the last call.
  [[nodiscard]] bool take_progress(const Lane& lane) {
    if (readouts_[lane.readout].lanes.empty()) return false;
    DataLane& one = lane_at(lane);
    const std::uint64_t before = std::exchange(one.unfinished, one.data.unfinished());
    return one.unfinished != before;
  }
  // Closes the lane, since bytes came over it that no correct readout unit sends.
  void hang_up(const Lane& lane, std::string_view why);
  // A full carrier has come over this lane.
  void carrier_filled(const Lane& lane) {
    if (!grants_.empty()) grants_[lane_at(lane).rail].carrier_filled(lane.readout);
  }
  // Closes a lane that does not work, and the connection for requests over the same rail.
  void drop(const Lane& lane);

  // Pull: asks each readout unit, or one, for this batch after all earlier requests.
  void request(EventNumber batch);
  void request(NodeId readout, EventNumber batch) {
    readouts_[readout].to_request.push_back(batch);
    requests_pending_ = true;
  }
  // Once a turn: sends requests, as far as readout units read them. `member(NodeId)`: the
  // incarnation that takes part. `find(EventNumber)`: the assignment; none: the batch needs no
  // request any more.
  template <class Member, class Find>
  void send_requests(Member member, Find find);
  // Once a turn, before requests are sent, with shaping: what readout units may send from now on.
  // `owes(Lane)`: whether data of its sources are missing.
  template <class Owes>
  void grant(Owes owes);
  // Once a turn, behind requests: tells readout units what they are granted.
  void send_grants();
  // True: the lane is connected, and its readout unit has no grant to send. A readout unit owes
  // only what it may send.
  [[nodiscard]] bool waits_for_grant(const Lane& lane) const {
    const Readout& readout = readouts_[lane.readout];
    if (grants_.empty() || readout.lanes.empty() || !readout.lanes[lane.index].data) return false;
    return !grants_[readout.lanes[lane.index].rail].may_send(lane.readout);
  }
  // The grants of each rail; without shaping there are none.
  [[nodiscard]] std::span<const shaping::Grants> grants() const { return grants_; }
  // Once a turn: says which readout units reach this node, as far as that has changed.
  void report(ControlClient& control);

  // How many connections were refused since they named another run or incarnation.
  [[nodiscard]] std::uint64_t stale() const { return stale_; }

  void on_event(net::Transport& transport, net::Event& event) override;

private:
  struct DataLane {
    net::Link data; // none: it is not open
    std::uint8_t rail = 0;
    std::uint64_t unfinished = 0; // bytes of a message, when take_progress() was asked
    ControlBatcher grants; // over `data`
  };
  struct Readout {
    Incarnation incarnation = 0; // of the latest connection that said hello
    std::uint32_t connection = 0; // its number
    std::vector<DataLane> lanes; // of it
    std::size_t open = 0; // of the lanes
    std::uint32_t lane_lost = 0; // the first one that has ended
    wire::Reached reported; // to the event manager
    ControlBatcher requests; // pull
    Incarnation requests_to = 0;
    std::deque<EventNumber> to_request; // batches
    [[nodiscard]] bool complete() const { return open > 0 && open == lanes.size(); }
  };
  struct Owner { // of a connection that has said hello
    NodeId readout = 0;
    wire::Role role{}; // data or request
    std::size_t lane = 0; // data
  };

  void on_hello(net::Link link, const memory::View& page);
  void on_closed(net::Link link);
  [[nodiscard]] static std::optional<wire::Hello> hello_in(const memory::View& page);
  [[nodiscard]] std::string wrong_with(const wire::Hello& hello) const;
  void hang_up(net::Link link, std::string_view why);
  void open_lane(net::Link link, const wire::Hello& hello);
  [[nodiscard]] bool fits_in(const Readout& readout, const wire::Hello& hello) const;
  void disconnect_lane(Readout& readout, std::size_t lane);
  void disconnect_data(Readout& readout);
  void disconnect_requests(Readout& readout);
  [[nodiscard]] wire::Grant grant_for(const Lane& lane);
  void send_first_grants(NodeId readout);
  [[nodiscard]] Lane lane_of(NodeId readout, std::size_t index) const {
    return {readout, index, lanes(readout)};
  }
  [[nodiscard]] DataLane& lane_at(const Lane& lane) {
    return readouts_[lane.readout].lanes[lane.index];
  }
  // The lane of this readout unit over this rail; none: it has none there.
  [[nodiscard]] std::optional<Lane> lane_over(std::size_t rail, NodeId readout) const;
  [[nodiscard]] bool may_answer(NodeId readout) const;

  const System& system_;
  const std::uint64_t digest_; // of system_
  NodeEnvironment environment_;
  Receiver& receiver_;
  std::vector<net::Listener> listeners_; // one a rail
  RunNumber run_ = 0;
  Incarnation incarnation_ = 0; // of this node; 0: no connection is accepted
  std::vector<Readout> readouts_;
  UnidentifiedLinks unidentified_;
  std::map<net::Link, Owner> owners_;
  std::vector<shaping::Grants> grants_; // by rail; empty: no shaping
  net::Timer grant_tick_; // wakes the loop
  std::vector<std::pair<NodeId, std::size_t>> granting_; // lanes whose grants may not have left
  bool changed_ = false; // since report() said everything
  bool requests_pending_ = false;
  std::uint64_t stale_ = 0;
  LogLimiter refusals_; // of peers that are cut off
};

template <class Owes>
void ReadoutLinks::grant(Owes owes) {
  Time wake = never;
  for (std::size_t rail = 0; rail < grants_.size(); ++rail) {
    grants_[rail].update(environment_.loop->now(), [&](NodeId readout) {
      const auto lane = lane_over(rail, readout);
      return lane && owes(*lane);
    });
    wake = std::min(wake, grants_[rail].wake());
  }
  grant_tick_.set(*environment_.loop, wake);
}

template <class Member, class Find>
void ReadoutLinks::send_requests(Member member, Find find) {
  if (!requests_pending_) return;
  requests_pending_ = false;
  for (std::size_t i = 0; i < readouts_.size(); ++i) {
    Readout& readout = readouts_[i];
    const auto node = static_cast<NodeId>(i);
    if (!readout.requests) continue;
    if (!may_answer(node)) { // it is asked when it may
      requests_pending_ = requests_pending_ || !readout.to_request.empty();
      continue;
    }
    if (readout.requests_to == member(node)) {
      while (!readout.to_request.empty() && readout.requests.roomy()) {
        const std::optional<wire::Assign> assign = find(readout.to_request.front());
        readout.to_request.pop_front();
        if (!assign) continue;
        send_first_grants(node);
        readout.requests.append(*assign);
      }
      readout.requests.flush();
      if (readout.requests.failed()) disconnect_requests(readout);
    }
    if (!readout.to_request.empty() || !readout.requests.is_idle()) requests_pending_ = true;
  }
}

} // namespace fanin::builder
