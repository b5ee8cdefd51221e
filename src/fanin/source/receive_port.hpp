/// \file
/// A TCP address at which the senders of one or several `receive` sources connect. It accepts them,
/// reads for which source each one is, and hands it over.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "fanin/base/clock.hpp"
#include "fanin/base/result.hpp"
#include "fanin/base/state.hpp"
#include "fanin/net/address.hpp"
#include "fanin/net/stream/stream.hpp"
#include "fanin/net/url.hpp"
#include "fanin/source/receive_preface.hpp"

namespace fanin::source {

/// Thread: the loop of its sources.
class ReceivePort {
public:
  /// So many connections may be open whose preface has not come. If another one connects then, the
  /// oldest of them is closed, as soon as it is older than `preface_time`.
  static constexpr std::size_t unidentified_max = 64;
  static constexpr Duration preface_time = std::chrono::milliseconds{500};
  /// So many senders may wait for their turn at an address of one source. More connections stay in
  /// the listen queue. At an address of several sources this would hold up the senders of the other
  /// sources: there further senders of this source are refused, and connections stay in the listen
  /// queue once `all_waiting_max` senders wait for all sources together.
  static constexpr std::size_t waiting_max = 256;
  static constexpr std::size_t all_waiting_max = 2 * waiting_max;
  /// Early senders: those whose source is expected and not active yet. Each of these sources has an
  /// equal share of so many places. Senders beyond it are refused: they hold up nobody whose source
  /// is active.
  static constexpr std::size_t early_max = 256;

  /// A sender that has said for whom it is.
  struct Arrival {
    std::unique_ptr<net::Stream> stream;
    net::Address address;
    std::string peer; ///< the address, for messages
    SourceId source = 0;
    std::uint64_t sender = 0; ///< number of a reliable sender; 0: it is a plain one
    RunIdentity run{}; ///< that a group names; its number is 0 for others
    [[nodiscard]] bool reliable() const { return sender != 0; }
  };

  /// A source at this address.
  class Member {
  public:
    virtual ~Member() = default;
    [[nodiscard]] virtual SourceId id() const = 0;
    [[nodiscard]] virtual bool allows(const net::Address& peer) const = 0;
    [[nodiscard]] virtual std::size_t waiting() const = 0; ///< senders whose turn has not come
    virtual void take(Arrival arrival, Time now) = 0;
    /// A connection was closed before it came to a source. The first source at the address is told
    /// where no other one is meant. `why`: more than the fault says; may be empty.
    virtual void closed(std::string_view peer, ReceiveFault fault, std::string_view why,
                        Time now) = 0;
    /// A connection was closed because this host has no room for it.
    virtual void refused(std::string_view why, Time now) = 0;
    virtual void warn(std::string_view text, Time now) = 0;
  };

  /// Errors: exhausted. Does not listen yet. `streams` outlives it.
  [[nodiscard]] static Result<std::shared_ptr<ReceivePort>> make(net::Url url,
                                                                 net::Streams& streams);

  /// This source will call add() later. Its senders may connect before, and then wait.
  void expect(Member& member);
  /// It will not call anything any more. Its early senders are told that there is no such source.
  void withdraw(Member& member);
  /// Looks its name up, and blocks meanwhile; listens from then on. Errors: not_found; refused
  /// (port in use); disconnected, if asking again may help.
  [[nodiscard]] Result<> prepare();
  /// Senders of this source are accepted. Errors: those of prepare(), which it calls if nobody has.
  [[nodiscard]] Result<> add(Member& member);
  /// Its data have ended: senders that come for it later are told so. When no other source is
  /// active or expected, the port is closed. Returns how many connections that have not said for
  /// whom they are were closed with it.
  std::size_t end_of_data(Member& member);

  /// Accepts, and hands over.
  void poll(Time now);
  /// When poll() is to be called.
  [[nodiscard]] Time due() const { return watch_->readable() ? Time{} : due_; }
  /// A source has room for another sender.
  void retry() { due_ = Time{}; }
  [[nodiscard]] net::Streams& streams() { return streams_; }
  /// Becomes readable when poll() has something to do.
  [[nodiscard]] net::StreamWatch& watch() { return *watch_; }
  [[nodiscard]] std::string listening_url() const; ///< with the real port; empty: not now
  /// Several sources use it whose data have not ended.
  [[nodiscard]] bool shared() const;

private:
  enum class State : std::uint8_t {
    expected, // it has not called add() yet
    active, // its senders are handed over to it
    ended // its data have; it is active again in another incarnation of its readout unit
  };
  friend constexpr bool may_follow(State from, State to) {
    return to == State::active || (to == State::ended && from == State::active);
  }
  struct Place {
    Member* member = nullptr;
    CheckedState<State> state = State::expected;
    bool absence_logged = false; // that senders wait for it
    std::vector<Arrival> early{}; // they wait until it is active
  };
  struct UnidentifiedSender {
    Arrival arrival; // without its source
    Time due{}; // when it may be closed to make room
    PrefaceReader preface{};
  };

  ReceivePort(net::Url url, net::Streams& streams, std::unique_ptr<net::StreamWatch> watch);
  [[nodiscard]] Time accept_all(Time now);
  [[nodiscard]] bool accept_one(Time now);
  [[nodiscard]] bool read_preface(UnidentifiedSender& sender, Time now);
  void hand_over(UnidentifiedSender& sender, Time now);
  void hand_over(Arrival arrival, Time now);
  void keep(Arrival arrival, Place& place, Time now);
  [[nodiscard]] bool has_early_place(const Place& place) const;
  void drop_closed_early(Time now);
  void refuse(const Arrival& arrival, bool ended, Time now);
  void read_prefaces(Time now);
  [[nodiscard]] Time evict_oldest(Time now);
  [[nodiscard]] std::size_t waiting() const;
  [[nodiscard]] Place* find(SourceId id);
  [[nodiscard]] std::string known_sources() const;
  [[nodiscard]] Place& place_of(const Member& member);
  [[nodiscard]] Member* first() const;
  std::size_t close_if_over();

  net::Url url_;
  net::Streams& streams_;
  std::vector<net::Address> addresses_; // at which it listens; the first that is free
  std::unique_ptr<net::StreamWatch> watch_; // of the listener and the unidentified senders
  std::unique_ptr<net::StreamListener> listener_;
  std::vector<Place> sources_; // in the order of expect()
  std::vector<UnidentifiedSender> unidentified_; // in the order in which they came
  bool closed_early_dropped_ = false; // in this poll
  Time polled_at_{}; // the last time
  Time due_ = never;
};

/// The ports of a process: sources of a node with the same address share one.
class ReceivePorts {
public:
  /// Port 0 is a new one each time. Errors: as of ReceivePort::make().
  [[nodiscard]] Result<std::shared_ptr<ReceivePort>> at(const net::Url& url, net::Streams& streams);

private:
  std::map<std::pair<net::Streams*, std::string>, std::weak_ptr<ReceivePort>> ports_;
};

/// Answers the preface of a reliable sender. `more_follows`: to be sent together with what is sent
/// next. False: the connection is gone.
bool send_answer(net::Stream& stream, const ReceiveReply& answer, bool more_follows = false);

} // namespace fanin::source
