// A simulated network of switches: messages enter it at a host, cross links as packets, and come
// out at another host.
//
// A packet is a worm: its head takes the links of its route one after the other (cut-through), and
// its tail leaves them. Where the head has to wait, the body moves up into the buffers on the way;
// what has no room there stays on the links behind and blocks them (backpressure). No flit is
// simulated: from the times at which the head took its links follow those at which the tail leaves
// them, since each byte waits only for the byte before it, for its own coming over the link before,
// and for room behind the next link.
//
// Sources: W. J. Dally, C. L. Seitz, "Deadlock-Free Message Routing in Multiprocessor
// Interconnection Networks", IEEE Trans. Comput. C-36 (1987) 547, for wormhole routing; P. Kermani,
// L. Kleinrock, "Virtual Cut-Through", Computer Networks 3 (1979) 267.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "fanin/base/random.hpp"
#include "fanin/base/result.hpp"
#include "fanin/fabric/event_queue.hpp"
#include "fanin/fabric/time.hpp"
#include "fanin/fabric/topology.hpp"

namespace fanin::fabric {

// Where a packet waits for the link after.
enum class Queueing : std::uint8_t {
  input_fifo, // a FIFO for each input: its first packet blocks those behind it
  virtual_output_queues, // for each input a queue for each output
  output_queues // a queue for each output, which all inputs may fill at the same time
};

// What happens to a packet for which an output queue has no room.
enum class WhenFull : std::uint8_t {
  pause, // it waits where it is
  drop // its network interface sends it again after FabricOptions::resend_after
};

enum class Routing : std::uint8_t {
  fixed, // for each pair of ports one route, drawn once
  destination, // a table by destination
  dispersive, // any route for each packet
  adaptive // any route, drawn again when the head was blocked for reroute_after. Of input FIFOs
};

struct FabricOptions {
  TopologyOptions topology;
  Queueing queueing = Queueing::output_queues;
  WhenFull when_full = WhenFull::pause;
  std::uint64_t buffer = 64U << 10; // bytes of each queue in a switch
  Routing routing = Routing::fixed;
  Duration reroute_after = std::chrono::microseconds{10};
  Duration resend_after = std::chrono::milliseconds{200};
  std::uint32_t packet = 4096; // most bytes of a message in a packet
  std::uint32_t packet_header = 0; // bytes beside them
  // Network interfaces, each with all its ports. 0: no limit besides that of the links.
  double nic_out = 0; // bytes per second
  double nic_in = 0;
  bool nic_shared = false; // what goes out and what comes in take turns, as over one bus
  Duration message_cost{}; // between the begins of two messages of a host
  bool queue_for_each_destination = false; // in the network interface; else one FIFO for a port
  std::uint64_t seed = 1;
};

struct Delivery {
  std::uint64_t tag = 0;
  std::uint32_t source = 0;
  std::uint32_t destination = 0;
  std::uint64_t bytes = 0;
  Picoseconds first = 0; // its first byte is there
  Picoseconds last = 0; // its last byte is there: not before the event in which this is said
};

struct FabricCounters {
  std::uint64_t events = 0; // heads that took a link, and tails that left one
  std::uint64_t messages = 0; // delivered
  std::uint64_t packets = 0; // delivered
  std::uint64_t payload = 0; // their bytes, without headers
  std::uint64_t dropped = 0; // packets
  std::uint64_t rerouted = 0; // heads that have gone another way
  std::uint64_t queue_most = 0; // bytes for which a queue of a switch had room taken, at most
};

// It stays one type of more than 400 lines, since each event touches a worm, its queue and its
// link at the same time.
class Fabric {
public:
  // Errors: usage. What is wrong, without the name of the key.
  [[nodiscard]] static Result<std::unique_ptr<Fabric>> make(const FabricOptions& options);

  // Called in advance(), when the last byte of a message is on its last link.
  std::function<void(const Delivery&)> on_delivered;
  // Called in advance(), when the last packet of a message has left its host.
  std::function<void(std::uint32_t source)> on_departed;

  // At now(), or at a time after it and before that of any event.
  void send(Picoseconds at, std::uint32_t source, std::uint32_t destination, std::uint64_t bytes,
            std::uint64_t tag);
  [[nodiscard]] bool idle() const { return events_.empty(); }
  [[nodiscard]] Picoseconds next_time() { return events_.next_time(); } // not while idle
  void advance(); // one event

  [[nodiscard]] const Topology& topology() const { return topology_; }
  [[nodiscard]] const FabricCounters& counters() const { return counters_; }
  // Bytes that have left a link, with the headers of their packets.
  [[nodiscard]] std::uint64_t bytes_over(std::uint32_t link) const { return links_[link].bytes; }
  [[nodiscard]] Rate link_rate() const { return link_rate_; }

private:
  static constexpr std::uint32_t none = ~0U;
  static constexpr std::uint32_t hops_most = 4; // port to leaf to spine to leaf to port

  enum class Kind : std::uint16_t { ready, head, tail, blocked, resend };

  struct Message {
    std::uint64_t tag = 0;
    std::uint64_t bytes = 0;
    std::uint64_t to_send = 0; // bytes that are in no packet yet
    std::uint64_t missing = 0; // bytes that have not come out
    std::uint32_t source = 0;
    std::uint32_t destination = 0;
    std::uint32_t port = 0; // of both hosts
    std::uint32_t next = none; // in the queue of the network interface, or of free ones
    Picoseconds first = -1;
    Picoseconds last = 0;
  };
  struct Hop {
    std::uint32_t link = none;
    std::uint32_t queue = none; // from which it takes the link
    std::uint32_t next = none; // the place behind it in that queue
    std::uint32_t room = 0; // of the queue behind the link; 0: none is needed
    Picoseconds head = 0; // when it took the link
    Picoseconds finish = 0; // when its last byte would leave the link if nothing blocked it
  };
  // What each event touches comes first.
  struct alignas(32) Worm {
    std::uint32_t message = none; // of free ones: the next
    std::uint32_t payload = 0;
    std::uint32_t size = 0; // with the header
    std::uint32_t port = 0; // its destination
    std::uint32_t wants = none; // link
    std::uint32_t then = none; // the link after it, where a queue depends on that
    std::uint16_t generation = 0; // of its request, for Kind::blocked
    std::uint8_t taken = 0; // links
    std::uint8_t left = 0; // links whose tail time is known
    bool sent_again = false;
    std::array<Hop, hops_most> hops;
  };
  static_assert(sizeof(Hop) == 32 && sizeof(Worm) == (1 + hops_most) * 32);
  struct Queue {
    std::uint64_t room = 0; // bytes; unlimited in a network interface
    std::uint64_t size = 0;
    std::uint32_t first = none; // places: hops of worms, since a long worm lies in several queues
    std::uint32_t last = none;
    std::uint32_t input = none; // the link that fills it; none: several, or a network interface
    std::uint32_t next_request = none; // in the list of a link
    // Output queues: those whose first worm waits for room in this one, and the one for which this
    // one's does.
    std::uint32_t first_waiting = none;
    std::uint32_t last_waiting = none;
    std::uint32_t waiting = 0;
    std::uint32_t next_waiting = none;
    std::uint32_t waits_for = none;
  };
  struct LinkState {
    std::uint32_t worm = none; // that is on it
    std::uint32_t first_request = none; // queues
    std::uint32_t last_request = none;
    bool feeds = false; // one of the queues behind it sends: the others have to wait
    std::uint64_t bytes = 0;
  };
  struct Interface { // of a network, of a host
    Picoseconds out_free = 0;
    Picoseconds in_free = 0;
    Picoseconds processor_free = 0;
    std::vector<std::uint8_t> next_ports; // by destination; empty with one port
  };
  struct Waiting { // messages in a network interface
    std::uint32_t first = none;
    std::uint32_t last = none;
  };

  Fabric(const FabricOptions& options, Topology topology);
  void make_queues();
  [[nodiscard]] std::uint32_t next_port(Interface& interface, std::uint32_t destination) const;
  void enter(std::uint32_t message);
  void make_worm(std::uint32_t queue);
  void push(std::uint32_t queue, std::uint32_t worm);
  void request(std::uint32_t queue);
  [[nodiscard]] Hop& hop_at(std::uint32_t place) {
    return worms_[place / hops_most].hops[place % hops_most];
  }
  [[nodiscard]] std::uint32_t first_worm(std::uint32_t queue) const {
    return queues_[queue].first / hops_most;
  }
  [[nodiscard]] std::uint32_t choose(const Worm& worm, std::uint32_t at_switch);
  void choose_links(Worm& worm);
  [[nodiscard]] bool has_other_way(const Worm& worm) const;
  [[nodiscard]] std::uint32_t queue_behind(std::uint32_t link, std::uint32_t then) const;
  void add_request(std::uint32_t link, std::uint32_t queue);
  void remove_request(std::uint32_t link, std::uint32_t queue);
  void serve(std::uint32_t link);
  [[nodiscard]] bool may_take(std::uint32_t link, std::uint32_t queue);
  void take(std::uint32_t link, std::uint32_t queue);
  void wait_for_room(std::uint32_t queue, std::uint32_t full);
  void stop_waiting(std::uint32_t queue);
  [[nodiscard]] Picoseconds reserve_interface(const Worm& worm, std::uint32_t link,
                                              Picoseconds finish);
  void find_tails(std::uint32_t worm);
  [[nodiscard]] static Picoseconds tail_time(const Worm& worm, std::size_t hop);
  void fill(std::uint32_t queue, std::uint64_t bytes);
  void head_arrived(std::uint32_t worm);
  void tail_left(std::uint32_t worm, std::size_t hop);
  void leave_queue(std::uint32_t queue, std::uint64_t room);
  void departed(const Worm& worm);
  void came_out(std::uint32_t worm);
  void blocked(std::uint32_t worm, std::uint16_t generation);
  void free_worm(std::uint32_t worm);
  void free_message(std::uint32_t message);

  FabricOptions options_;
  Topology topology_;
  Random random_;
  EventQueue events_;
  Rate link_rate_;
  Rate nic_out_;
  Rate nic_in_;
  Picoseconds latency_;
  std::vector<LinkState> links_;
  std::vector<Queue> queues_; // of network interfaces first
  std::vector<std::uint32_t> queue_of_link_; // the first one behind it; of output_queues: before it
  std::uint32_t queues_of_port_ = 1; // in its network interface
  std::vector<Waiting> waiting_; // for each of these
  std::vector<Interface> interfaces_;
  std::vector<Worm> worms_;
  std::uint32_t free_worms_ = none;
  std::vector<Message> messages_;
  std::uint32_t free_messages_ = none;
  FabricCounters counters_;
};

} // namespace fanin::fabric
