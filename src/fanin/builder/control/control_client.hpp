// A node's conversation with the event manager: it connects, in whatever order the processes start,
// and says hello. After a loss it connects again; within `grace` the conversation goes on as if
// nothing had happened. Readout and builder units use it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "fanin/base/log.hpp"
#include "fanin/base/state.hpp"
#include "fanin/builder/control/control_channel.hpp"
#include "fanin/builder/control/node_environment.hpp"
#include "fanin/builder/control/silence_watch.hpp"
#include "fanin/builder/system.hpp"
#include "fanin/net/link.hpp"
#include "fanin/net/loop.hpp"

namespace fanin::builder {

class ControlClient final : public net::Handler {
public:
  // Called for each message from the event manager; false: it is invalid, hang up.
  using OnMessage = std::function<bool(wire::MessageType, std::span<const std::byte>)>;

  struct Options {
    std::vector<net::Url> event_manager; // rails: where it listens, each over another network
    wire::Hello hello; // role, node, digest, capacity
    std::string text; // name, '\n', data URL
    // Several rails: when there was no answer for so long, another rail is tried beside the first.
    Duration patience{};
    Duration grace{}; // without a connection, before the conversation is over
    Duration give_up_after =
        std::chrono::seconds{10}; // without an event manager that once was there
    OnMessage on_message;
    std::function<void()> on_lost; // the conversation is over; a new one is tried
    // Refused for good, or for longer than give_up_after; or the event manager stays away, or is
    // silent for longer than a minute and longer than give_up_after.
    std::function<void(const Error&)> on_given_up;
  };

  ControlClient(NodeEnvironment environment, Options options);
  ~ControlClient() override;

  void start();
  void stop(); // closes; what was gathered is still sent
  void flush(); // end of turn

  template <class Body, class... Parts>
  void send(const Body& body, const Parts&... parts) {
    channel_.append(body, parts...);
  }
  // As ControlChannel::roomy(): messages that may be long are sent only while there is room.
  [[nodiscard]] bool roomy(std::size_t parts_bytes = 0) { return channel_.roomy(parts_bytes); }
  [[nodiscard]] std::size_t room_max() const { return channel_.room_max(); }
  // Most bytes of human-readable text after that many bytes of other parts.
  [[nodiscard]] std::size_t text_max(std::size_t parts_bytes) const {
    return std::min(room_max() / 4, room_max() - parts_bytes);
  }
  [[nodiscard]] bool connected() const {
    return state_ == State::waits_for_welcome || state_ == State::welcomed;
  }
  [[nodiscard]] bool sent() const { return channel_.sent(); }
  // It was refused because the run is ending.
  [[nodiscard]] bool too_late() const { return too_late_; }

  void on_event(net::Transport& transport, net::Event& event) override;

private:
  enum class State : std::uint8_t {
    connecting, // there is no connection; one is being made, or will be
    waits_for_welcome, // connected, and has said hello
    welcomed, // over this connection
    stopped // for good
  };
  friend constexpr bool may_follow(State from, State to) {
    const bool connected = from == State::waits_for_welcome || from == State::welcomed;
    return to == State::stopped || (from != State::stopped && (to != State::welcomed || connected));
  }

  void connect();
  [[nodiscard]] const net::Url& rail() const { return options_.event_manager[rail_]; }
  [[nodiscard]] bool has_rails() const { return options_.event_manager.size() > 1; }
  [[nodiscard]] std::size_t rail_after(std::size_t rail) const {
    return (rail + 1) % options_.event_manager.size();
  }
  [[nodiscard]] bool no_rail_left();
  [[nodiscard]] Result<net::Link> connect_over(const net::Url& rail);
  void watch_rail();
  void try_other_rail();
  void change_rail();
  void forget_other();
  void stop_watching();
  void on_other(const net::Event& event);
  void try_again();
  void send_hello();
  void lost(std::string_view why);
  void welcomed();
  void end_conversation();
  void give_up(const Error& error);
  bool on_message(wire::MessageType type, std::span<const std::byte> body);
  void receive(const memory::View& page);
  void on_closed(net::CloseReason reason);
  void refused(const std::string& reason, wire::RefusalKind kind);
  void watch_silence();
  // The event manager has something to answer.
  [[nodiscard]] bool waits() const {
    return state_ != State::welcomed || !channel_.all_acknowledged();
  }

  NodeEnvironment environment_;
  Options options_;
  ControlChannel channel_;
  net::Link link_;
  std::size_t rail_ = 0; // of link_, or of the next one
  std::size_t impossible_rails_ = 0; // rails in a row over which no event manager can be
  struct Other { // a connection over another rail, while nothing is answered over link_
    net::Link link;
    std::size_t rail = 0; // of it, or of the one before
    bool connected = false;
    int checks = 0; // since it was begun, or is connected
  };
  Other other_;
  SilenceWatch rail_silence_; // of link_, while another rail could be used
  SilenceWatch silence_; // of the event manager, over all rails
  net::Timer rail_tick_; // several rails: while there is a connection, or one is being made
  net::Timer retry_;
  net::Timer grace_; // runs while the conversation is without a connection
  net::Timer silence_tick_; // from the first welcome on
  Duration retry_after_;
  CheckedState<State> state_ = State::connecting;
  bool was_connected_ = false; // an event manager was there
  bool too_late_ = false; // for the run
  Incarnation incarnation_ = 0; // of the conversation; 0: there is none
  Time lost_at_ = never; // the first loss since it was last welcome
  Time refused_since_ = never;
};

} // namespace fanin::builder
