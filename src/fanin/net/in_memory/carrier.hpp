/// \file
/// What carries items from node to node of a network in memory, and how long they take. A network
/// has latencies of its own (LatencyCarrier); simulation/ has a carrier over simulated links and
/// switches.
#pragma once

#include <cstdint>

#include "fanin/base/clock.hpp"
#include "fanin/base/export.hpp"
#include "fanin/base/random.hpp"

namespace fanin::net::in_memory {

struct Item;
class Network;

/// An item leaves a node.
struct Departure {
  Item* item = nullptr; ///< lives until it has arrived
  std::uint32_t from = 0; ///< nodes
  std::uint32_t to = 0;
  std::uint32_t bytes = 0; ///< of a message; 0: of what is said about the connection
  Time at{}; ///< when it leaves, not before now
};

/// Thread: that of its network, which it outlives.
class FANIN_INTERNAL_API Carrier {
public:
  virtual ~Carrier() = default;
  /// Each item that has departed arrives once, now or later. The network keeps the order of items
  /// of one end of a connection.
  virtual void depart(const Departure& departure) = 0;
  /// When it has something to do again; never: nothing is under way, or its end is known.
  [[nodiscard]] virtual Time next() { return never; }
  /// Does what is due at `now`, the time of next().
  virtual void advance(Time /*now*/) {}

protected:
  /// Its first and its last byte are there at these times, not before now.
  void arrive(Item& item, Time first, Time last) const;

private:
  friend class Network;
  Network* network_ = nullptr;
};

/// Each item takes a time of its own, uniform between two limits, whatever else is under way.
class LatencyCarrier final : public Carrier {
public:
  /// `random` is that of the network, and may be null if both limits are 0.
  LatencyCarrier(Random* random, Duration least, Duration most)
      : random_(random), least_(least), most_(most) {}

  void depart(const Departure& departure) override;
  [[nodiscard]] Duration draw(Random& random) const;

private:
  Random* random_;
  Duration least_;
  Duration most_;
};

} // namespace fanin::net::in_memory
