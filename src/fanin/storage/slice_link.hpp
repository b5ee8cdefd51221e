/// \file
/// The connection of a builder unit of the first stage to one slice of the second: connects, sends
/// super-fragments in order, hears what is announced, and after a loss sends again what was not
/// read.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <sys/uio.h>

#include "fanin/base/clock.hpp"
#include "fanin/base/identity.hpp"
#include "fanin/base/log.hpp"
#include "fanin/base/log_limiter.hpp"
#include "fanin/base/state.hpp"
#include "fanin/net/loop.hpp"
#include "fanin/net/stream/stream_connector.hpp"
#include "fanin/net/url.hpp"
#include "fanin/source/own_checksum.hpp"
#include "fanin/storage/super_fragments.hpp"

namespace fanin::storage {

struct SliceLinkOptions {
  std::string name; ///< "slice 1 at tcp://daq-s1:7500", for messages
  net::Url url; ///< of its source
  SourceId source = 0;
  std::uint64_t sender = 1; ///< number of this sender, not 0
  RunIdentity run{}; ///< that its slice has to be in; a number of 0: any one
  bool first = true; ///< no earlier sender has sent anything to the slice in this run
  Duration give_up{}; ///< how long the slice is waited for while there is no connection
  LogFunction log;
};

/// Thread: the loop's. It never blocks.
class SliceLink {
public:
  /// `watch` says when poll() has something to do. All but the options outlive it.
  SliceLink(SliceLinkOptions options, net::Loop& loop, net::Streams& streams,
            net::StreamWatch& watch);
  SliceLink(const SliceLink&) = delete;
  SliceLink& operator=(const SliceLink&) = delete;

  /// A batch that the slice has announced, or that was given up. Of a batch without events: the
  /// slice was told that there are none.
  struct Done {
    std::uint64_t ticket = 0;
    std::uint32_t undelivered = 0; ///< events that the slice may not have, or has announced
                                   ///< before they were sent
    std::uint64_t bytes = 0; ///< payload
  };
  /// The numbers of a batch are above those of the ones before. They are held until they are done.
  void add(std::unique_ptr<SuperFragments> batch);
  [[nodiscard]] std::size_t waiting() const { return batches_.size(); }
  /// Nothing follows: when all batches are done, tells the slice to wait for nothing from here. A
  /// slice that is not there gets 5 s to come, unless it had no connection for too long already.
  void leave();
  /// leave() was called, and the slice may not have heard of it yet.
  [[nodiscard]] bool leaving() const { return leave_by_ != never && state_ != State::left; }
  /// Works with the connection, and appends what is done, in order. True: there is more to do.
  bool poll(std::vector<Done>& done);
  /// Since when the slice has neither answered nor announced anything of what waits.
  [[nodiscard]] Time stuck_since() const { return last_answer_at_; }
  /// "slice 1 at tcp://daq-s1:7500, which has announced nothing for 12 s"
  [[nodiscard]] std::string waits_for() const;
  /// When poll() is to be called, if the watch does not say so before.
  [[nodiscard]] Time due() const;

private:
  enum class State : std::uint8_t {
    closed,
    connecting,
    unanswered, // connected; the slice answers when it has read what was sent before
    open,
    told, // that nothing follows; the slice closes the connection when it has read that
    left // for good
  };
  friend constexpr bool may_follow(State from, State to) {
    switch (to) {
    case State::closed: return from != State::left;
    case State::connecting: return from == State::closed;
    case State::unanswered: return from == State::connecting;
    case State::open: return from == State::unanswered;
    case State::told: return from == State::open;
    case State::left: return from != State::open && from != State::left;
    }
    return false;
  }

  struct Place { // of batches_
    std::size_t batch = 0;
    std::size_t message = 0;
    std::uint64_t offset = 0; // bytes of it that were sent
  };

  void connect(Time now);
  void send_preface(Time now);
  [[nodiscard]] bool connected() const {
    return state_ == State::unanswered || state_ == State::open || state_ == State::told;
  }
  void watch(Time now);
  void lose(std::string_view why, Time now);
  void refuse(std::string why, Time now);
  void close(Time now);
  void say_pause(Time now);
  void end();
  [[nodiscard]] bool made_progress(Time now) const; // the connection, which was answered
  void receive(Time now);
  void take_message(Time now);
  void on_answer(const source::ReceiveReply& answer, Time now);
  void take_dropped(std::uint64_t dropped, Time now);
  void on_end(const net::Transfer& read, Time now);
  [[nodiscard]] bool send(Time now); // true: there is more
  void advance(std::uint64_t bytes);
  // Events below are sent no more: the slice has read them, or would take them as late since it
  // has announced them.
  [[nodiscard]] EventNumber done_end() const { return std::max(read_end_, announced_); }
  [[nodiscard]] Place to_send_from(Place at) const;
  void pass_done();
  [[nodiscard]] bool first_is_done() const;
  [[nodiscard]] bool given_up(Time now) const;
  void log_undelivered(bool is_done);
  void take_done(Time now, std::vector<Done>& done);

  SliceLinkOptions options_;
  net::Loop& loop_;
  net::StreamWatch& watch_;
  net::StreamConnector connector_;
  std::unique_ptr<net::Stream> stream_;
  CheckedState<State> state_ = State::closed;
  net::Timer answered_; // makes the loop turn
  Time retry_at_{}; // never: the first answer of the name service is waited for
  Time deadline_ = never; // of connecting, of the answer, and of leaving
  Time connected_at_{};
  Time check_at_{}; // while connected: when to look whether the other host still answers
  Duration pause_;
  Time last_answer_at_{}; // of the latest answer or announcement; not before something waited
  Time lost_at_; // since when something had no connection, or only such as made no progress; later
                 // by the time that one had no answer
  Time opened_at_{};
  EventNumber answered_end_ = 0; // done_end() when the connection was answered
  bool previous_made_progress_ = false; // it had risen since the one before was answered
  bool last_made_no_progress_ = false; // it ended soon, and done_end() had not risen
  Time leave_by_ = never; // where the slice is not there to be told; never: it does not leave
  LogLimiter lines_; // of losses
  bool loss_logged_ = false;
  std::string refused_; // why, as the slice answered last
  bool silence_logged_ = false;
  bool give_up_logged_ = false;
  bool not_sent_logged_ = false;

  std::deque<std::unique_ptr<SuperFragments>> batches_; // not done
  EventNumber end_ = 0; // behind the last one that was added
  Place next_; // to be sent
  EventNumber read_end_ = 0; // behind the last one that the slice had read when it answered
  EventNumber earlier_end_ = 0; // numbers below may have been sent by an earlier sender
  std::uint64_t announced_ = 0; // all numbers below
  std::uint64_t dropped_ = 0; // by the slice, or late there; it begins again with its readout unit
  source::CheckedBytes<source::ReceiveReply> message_in_{};
  std::size_t received_ = 0; // of message_in_
  std::size_t pause_sent_ = 0; // bytes of it, over this connection
  std::vector<iovec> parts_; // reused
};

} // namespace fanin::storage
