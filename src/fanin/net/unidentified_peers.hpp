/// \file
/// Peers that have connected and have not shown who they are: how many there may be, and which one
/// has to leave when another one waits. The order is that of arrival, so each question costs the
/// same however many there are.
///
/// Thread: the loop's.
#pragma once

#include <cstddef>
#include <cstdint>

#include "fanin/base/clock.hpp"
#include "fanin/net/work_list.hpp"

namespace fanin::net {

/// Bytes of the largest message that an unidentified peer may send.
inline constexpr std::uint32_t unidentified_message_max = 4096;

struct UnidentifiedLimits {
  std::uint32_t peers_max = 128; ///< unidentified at once
  /// How long a peer may stay unidentified while others wait for its place.
  Duration patience = std::chrono::seconds{1};
};

/// `Peer`: a connection; it has an Entry as a member.
template <class Peer>
class UnidentifiedPeers {
public:
  /// Ends with the connection, which is then counted no more.
  class Entry {
  public:
    explicit Entry(Peer& peer) : peer_(&peer) {}
    [[nodiscard]] bool unidentified() const { return place_.listed(); }
    /// Or the connection is over: it is not counted any more. Idempotent.
    void mark_identified() { place_.leave(); }

  private:
    friend class UnidentifiedPeers;
    Peer* peer_;
    Time since_{};
    typename WorkList<Entry>::Place place_{*this};
  };

  explicit UnidentifiedPeers(UnidentifiedLimits limits) : limits_(limits) {}

  /// From now on the peer is counted.
  void add(Entry& entry, Time now) {
    entry.since_ = now;
    entries_.add(entry.place_);
  }
  /// A peer that is counted gets its time again.
  void renew(Entry& entry, Time now) {
    entry.place_.leave();
    add(entry, now);
  }
  void set_patience(Duration patience) { limits_.patience = patience; }
  [[nodiscard]] std::size_t size() const { return entries_.size(); }
  [[nodiscard]] bool full() const { return entries_.size() >= limits_.peers_max; }
  /// Whether one more may come: there is a place, or peer_to_evict() leaves one.
  [[nodiscard]] bool admits(Time now) const { return !full() || peer_to_evict(now) != nullptr; }
  /// The peer that has been unidentified for longest. Null: no peer has had its time yet. So the
  /// nodes of a whole system that start together do not push each other out.
  [[nodiscard]] Peer* peer_to_evict(Time now) const {
    return entries_.empty() || now < next_eviction() ? nullptr : entries_.first()->owner().peer_;
  }
  /// When there will be a peer to evict. `never`: there is no peer.
  [[nodiscard]] Time next_eviction() const {
    return entries_.empty() ? never : entries_.first()->owner().since_ + limits_.patience;
  }

private:
  UnidentifiedLimits limits_;
  WorkList<Entry> entries_; // in the order of arrival
};

} // namespace fanin::net
