/// \file
/// Takes fragments from a TCP connection: any program that uses the format of
/// docs/receive-format.md can be a source. Its senders come to a port, which it may share with
/// other sources. It reads one connection after the other, each up to its end; those that come
/// meanwhile wait.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "fanin/base/log.hpp"
#include "fanin/base/log_limiter.hpp"
#include "fanin/base/state.hpp"
#include "fanin/source/allowed_networks.hpp"
#include "fanin/source/receive_acknowledger.hpp"
#include "fanin/source/receive_decoder.hpp"
#include "fanin/source/receive_port.hpp"
#include "fanin/source/run_check.hpp"
#include "fanin/source/source.hpp"

namespace fanin::source {

struct ReceiveOptions {
  SourceId source = 0;
  std::shared_ptr<ReceivePort> port; ///< where it listens, alone or with others
  std::string listen_from; ///< "run.toml:12: readout.0.source.1.listen", for messages; may be empty
  bool check = true; ///< compare the sender's checksums
  bool wait_for_sender = false; ///< the run begins when a sender is there
  AllowedNetworks allow; ///< from where senders may connect
  LogFunction log; ///< gets lines about senders that connect or leave, a few in a second; may be
                   ///< empty
};

/// It stays one type of more than 400 lines, since whose turn it is follows from what the present
/// connection has sent, and what is read from whose turn it is.
class ReceiveSource final : public Source, private ReceivePort::Member {
public:
  /// Errors: exhausted. Does not listen yet.
  [[nodiscard]] static Result<std::unique_ptr<ReceiveSource>> make(ReceiveOptions options);
  ~ReceiveSource() override;

  /// Looks the name up at which it listens, and blocks meanwhile; listens from then on. Errors:
  /// not_found; refused (port in use); disconnected, if asking again may help.
  [[nodiscard]] Result<> prepare() override;
  /// With `wait_for_sender`: accepts senders from now on. True: one is there, or what a plain one
  /// has left, or the data have ended. If it cannot listen, start() says why.
  [[nodiscard]] bool ready(Time now) override;
  /// Accepts senders, until one says that the data have ended. Later calls keep the sender. Errors:
  /// those of prepare(), which it calls if nobody has.
  [[nodiscard]] Result<> start(EventNumber first_event, Time now) override;
  void joined(const RunIdentity& run) override { run_.joined(run); }
  [[nodiscard]] ReadResult read(FragmentQueue& queue, Time now) override;
  void announced(EventNumber end) override;
  void set_wake(std::function<void()> wake) override;
  [[nodiscard]] int descriptor() const override { return watch_->descriptor(); }
  [[nodiscard]] std::string listening_url() const override;
  /// connections, refused (they waited when the data ended), bad_checksum, repeats_skipped
  /// (fragments that were known already), and one for each ReceiveFault.
  [[nodiscard]] std::vector<SourceCounter> counters() const override;

private:
  ReceiveSource(ReceiveOptions options, std::unique_ptr<net::StreamWatch> watch);
  // what the port says
  [[nodiscard]] SourceId id() const override { return options_.source; }
  [[nodiscard]] bool allows(const net::Address& peer) const override {
    return options_.allow.contain(peer);
  }
  [[nodiscard]] std::size_t waiting() const override { return waiting_.size(); }
  void take(ReceivePort::Arrival arrival, Time now) override;
  void closed(std::string_view peer, ReceiveFault fault, std::string_view why, Time now) override;
  void refused(std::string_view why, Time now) override;
  void warn(std::string_view text, Time now) override;

  enum class State : std::uint8_t {
    idle,
    listening, // nothing was read since start()
    reading,
    ended // the sender said that the data have ended
  };
  friend constexpr bool may_follow(State from, State to) {
    switch (to) {
    case State::idle: return false;
    case State::listening: return true;
    case State::reading: return from == State::listening;
    case State::ended: return from == State::reading;
    }
    return false;
  }
  // The present connection, or the last one.
  struct Connection {
    std::unique_ptr<net::Stream> stream; // null: it has ended
    std::string peer;
    std::uint64_t sender = 0; // number of its sender; 0: a plain one
    bool begun = false; // bytes were read over it, or its sender was told that some were before
    Time connected_at{};
    Time last_bytes_at{};
    std::string replaced_by{}; // another one of the same number; empty: it is not
    bool waiting_logged = false; // that another one waits for its end
    Time place_kept_until{}; // for the sender, if it has ended too early
  };

  [[nodiscard]] Result<> with_place(Result<> result) const;
  [[nodiscard]] Result<> listen();
  [[nodiscard]] bool is_of_sender(const ReceivePort::Arrival& arrival) const;
  void take_again(ReceivePort::Arrival arrival, Time now);
  void replace_by(std::string peer);
  void begin_connection(ReceivePort::Arrival arrival, Time now);
  void join_again(FragmentQueue& queue, Time now);
  void begin_next(Time now);
  [[nodiscard]] Time watch_message(FragmentQueue& queue, Time now);
  [[nodiscard]] Time watch_waiting(Time now);
  Time say_who_waits(Time now);
  [[nodiscard]] ReadResult wait_until(Time wake, Time now) const;
  [[nodiscard]] ReadResult read_connections(FragmentQueue& queue, Time now);
  void count_dropped(const FragmentQueue& queue);
  void acknowledge(const FragmentQueue& queue);
  std::size_t receive(FragmentQueue& queue, Time now);
  void keep_place(const FragmentQueue& queue, Time now);
  [[nodiscard]] bool keeps_place(Time now) const { return now < connection_.place_kept_until; }
  enum class Ending : std::uint8_t { as_read, too_early };
  // as_read: too early if it ended within a message, or for a fault.
  void close_connection(FragmentQueue& queue, Time now, std::string_view why,
                        Ending ending = Ending::as_read);
  [[nodiscard]] std::size_t rest();
  void end_data(FragmentQueue& queue, Time now);
  void close_for_fault(FragmentQueue& queue, Time now);
  void count_end(std::string_view peer, ReceiveFault fault, std::string_view why, Time now);

  ReceiveOptions options_;
  std::unique_ptr<net::StreamWatch> watch_; // of the port and the connection
  std::function<void()> wake_;
  RunCheck run_;
  std::deque<ReceivePort::Arrival> waiting_; // for the end of the connection
  Time waiting_since_{}; // somebody was there all the time
  CheckedState<State> state_ = State::idle;
  Connection connection_;
  std::uint32_t places_kept_ = 0; // for its sender, in turn, while it brought no new message
  std::uint64_t new_messages_before_ = 0; // over earlier connections
  std::uint32_t takeovers_ = 0; // by senders of the same number, shortly after each other
  Time takeovers_until_{}; // a later one is not counted with them
  ReceiveDecoder decoder_;
  const EventNumbers* numbers_ = nullptr; // of its queue, from the first read() on
  ReceiveAcknowledger acknowledger_;
  std::vector<std::byte> staging_; // what was received and does not belong to the open fragment
  std::size_t staged_from_ = 0;
  std::size_t staged_to_ = 0;
  Time unreadable_since_{};
  std::uint64_t connections_ = 0;
  std::uint64_t refused_ = 0;
  std::uint64_t bad_checksums_logged_ = 0;
  LogLimiter connection_lines_; // connected, disconnected
  LogLimiter warnings_;
  std::array<std::uint64_t, receive_faults> faults_{};
};

} // namespace fanin::source
