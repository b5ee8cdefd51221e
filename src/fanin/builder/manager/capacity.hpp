// What builder units have room for. A batch is reserved as a whole before it is assigned: bytes of
// the builder unit's capacity, bytes of its transfer window, and metadata at the readout units. No
// builder unit may hold more than a fair share of what the readout units can keep, so that one that
// is slow or frozen does not stop the others.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "fanin/base/identity.hpp"

namespace fanin::builder {

// Knows no connection and no time. Sizes are bytes.
class Capacity {
public:
  struct Need {
    std::uint64_t bytes = 0; // at the builder unit: payload and metadata of all sources
    std::uint64_t metadata = 0; // at each readout unit, for each source (metadata_per_source())
  };
  enum class Use : std::uint8_t {
    first_attempt, // a part of the capacity is kept for batches of builder units that died
    reassignment // may use all of it
  };
  using Reservation = std::uint64_t; // counts those of one incarnation of a builder unit

  // `batch_bytes`: the largest usual batch. `transfer_window`: under way to one builder unit.
  // `in_order`: as System's.
  Capacity(std::size_t readout_units, std::size_t builder_units, std::uint64_t batch_bytes,
           std::uint64_t transfer_window, bool in_order);

  // `memory`: in which it keeps what is not cleared; `metadata`: for that, for each source.
  void readout_up(NodeId node, std::uint64_t memory, std::uint64_t metadata);
  void readout_down(NodeId node);
  // All of its capacity is free: what an earlier incarnation had reserved is forgotten.
  void builder_up(NodeId node, std::uint64_t capacity);
  void builder_down(NodeId node);

  [[nodiscard]] bool has_room(NodeId builder, const Need& need, Use use);
  [[nodiscard]] Reservation reserve(NodeId builder, const Need& need);
  // The batch has left the network: its part of the transfer window is free. At most once.
  void received(NodeId builder, Reservation reservation);
  // The batch is built or handed back. Capacity becomes free in the order of reservation: pages
  // are shared by neighbouring batches, so that only then bytes bound pages.
  void release(NodeId builder, Reservation reservation);

  [[nodiscard]] std::uint64_t capacity_of(NodeId builder) const {
    return builders_[builder].capacity;
  }
  [[nodiscard]] std::uint64_t reserved_by(NodeId builder) const {
    return builders_[builder].reserved;
  }
  // Of all builder units that are up, transfer windows and metadata included.
  [[nodiscard]] std::uint64_t bytes_reserved() const;

private:
  enum class State : std::uint8_t { under_way, received, released };
  struct Entry {
    Need need;
    State state = State::under_way;
  };
  struct Builder {
    bool up = false;
    std::uint64_t capacity = 0;
    std::uint64_t reserved = 0; // of the capacity
    std::uint64_t unreleased = 0; // of that
    std::uint64_t metadata = 0;
    std::uint64_t under_way = 0;
    std::deque<Entry> entries; // not released, and those behind
    Reservation first = 0; // of entries
  };
  struct Readout {
    bool up = false;
    std::uint64_t memory = 0;
    std::uint64_t metadata = 0;
  };
  struct Share {
    std::uint64_t memory = 0;
    std::uint64_t metadata = 0;
  };
  [[nodiscard]] const Share& fair_share();
  [[nodiscard]] Entry& entry(Builder& builder, Reservation reservation);

  std::uint64_t batch_bytes_;
  std::uint64_t transfer_window_;
  bool in_order_;
  std::vector<Readout> readouts_;
  std::vector<Builder> builders_;
  std::size_t builders_up_ = 0;
  std::optional<Share> share_; // none: to be computed, since a node came or went
};

} // namespace fanin::builder
