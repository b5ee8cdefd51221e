// What fanin send, receive, publish and subscribe have in common: options, the loop with one
// message socket, when to end, and what is said of it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "fanin/base/log_limiter.hpp"
#include "fanin/executive/signals.hpp"
#include "fanin/message/context.hpp"
#include "fanin/message/counters.hpp"
#include "fanin/message/message.hpp"
#include "fanin/message/peer.hpp"
#include "fanin/net/host_resolver.hpp"
#include "terminal.hpp"

namespace CLI {
class App;
}

namespace fanin::command {

// As the user wrote them; empty: the default.
struct ToolOptions {
  std::string url;
  std::string size = "64B";
  std::string rate;
  std::uint64_t count = 0;
  std::string duration;
  std::string mode = "high-throughput";
  std::string json;
  bool quiet = false;
  bool connects = false; // to where another one listens
  std::uint32_t peers = 32; // at a time; of those that listen
  std::string no_peer = "no answer"; // what is said where no other side has connected
};
void add_tool_options(CLI::App& command, ToolOptions& arguments);
void add_message_options(CLI::App& command, ToolOptions& arguments); // of those that send
void add_mode_option(CLI::App& command, ToolOptions& arguments);
void add_peers_option(CLI::App& command, ToolOptions& arguments); // of those that listen

class SocketTool final : net::Service {
public:
  // Errors: usage, also where the file for the result cannot be made.
  [[nodiscard]] static Result<std::unique_ptr<SocketTool>> make(const ToolOptions& arguments);
  ~SocketTool() override;

  [[nodiscard]] message::Context& context() { return *context_; }
  [[nodiscard]] const net::Url& url() const { return url_; }
  [[nodiscard]] message::Mode mode() const { return mode_; }
  [[nodiscard]] std::span<const std::byte> message() const { return message_; } // to be sent
  void say(std::string_view text) { terminal_.log(LogLevel::info, text); }
  // Of a peer that comes or goes: a few lines in a second, whatever peers do.
  void say_of_peer(std::string_view text);

  void listens_at(const net::Url& url); // with the port that was chosen

  // Offers messages whenever open() was said since the last one that was not taken, and for as long
  // as they are `wanted`: asked each turn; empty: always.
  using Offer = std::function<net::SendOutcome()>;
  void send_with(Offer offer, std::function<bool()> wanted = {});
  void open(bool open = true);
  // A connection to the other side could not be made or has ended. `other_kind`: what to say of a
  // socket that is no counterpart, which ends the tool: another attempt would not help.
  // `trouble`: what the socket says of it.
  void unconnected(message::CloseReason reason, std::string_view trouble,
                   std::string_view other_kind);
  void too_large_for_one(); // a subscriber does not take messages of --size
  // Around taking what has come: notes the times, ends at --count. A page, or a turn of the loop,
  // may have more messages than are left: those are taken too, and do not count.
  void receiving();
  [[nodiscard]] std::uint64_t left() const; // messages that count
  void received(std::uint64_t messages, std::uint64_t bytes);
  // Takes all that has come; `show` gets each message that counts.
  template <class Socket, class Show>
  void take_all(Socket& socket, message::Message& message, Show show) {
    receiving();
    const std::uint64_t most = left();
    std::uint64_t messages = 0;
    std::uint64_t bytes = 0;
    while (socket.recv(message)) {
      if (messages == most) continue;
      ++messages;
      bytes += message.size();
      show(message);
    }
    message = {};
    received(messages, bytes);
  }
  void end() { context_->stop(); }

  // Until the end; `close` closes the socket, and what it had accepted is delivered, unless the
  // user or the time limit gives that up; `sent` then says whether the socket still has some of it.
  // The exit status.
  [[nodiscard]] int run(
      const message::SocketCounters& counters, const std::function<void()>& close,
      const std::function<bool()>& sent = [] { return true; });

private:
  explicit SocketTool(const ToolOptions& arguments);
  bool poll() override;
  bool send_one();
  void end_or_give_up();
  void count_subscribers();
  [[nodiscard]] Result<> judge(const message::SocketCounters& counters) const;
  // Messages and bytes that count, of those that the socket has counted.
  [[nodiscard]] std::pair<std::uint64_t, std::uint64_t>
  counted_of(const message::SocketCounters& counters) const;
  void show_progress(const message::SocketCounters& counters);
  int report(const message::SocketCounters& counters);

  MonotonicClock clock_; // the loop's stands still within a turn
  ToolOptions arguments_;
  Terminal terminal_;
  LogLimiter peers_;
  std::optional<OutputFile> json_;
  net::Url url_;
  message::Mode mode_ = message::Mode::high_throughput;
  std::vector<std::byte> message_;
  Duration period_{}; // 0: as fast as it goes
  Duration duration_{}; // 0: no end
  std::unique_ptr<message::Context> context_;
  std::optional<net::HostResolver> resolver_; // of its loop
  std::unique_ptr<executive::Signals> signals_;
  executive::StopRequests stop_requests_{executive::SignalsFrom::anyone};
  net::Timer next_send_;
  net::Timer limit_;
  net::Timer waiting_; // says what for
  Offer offer_;
  std::function<bool()> wanted_;
  bool is_wanted_ = false;
  bool open_ = false;
  bool ending_ = false;
  bool delivered_ = true; // what was accepted; of who has something to send
  std::uint64_t given_up_before_ = 0; // connections, until the first message
  std::string reason_; // of the last connection that could not be made
  Result<> outcome_;
  std::uint64_t moved_ = 0; // messages
  std::uint64_t received_bytes_ = 0;
  Time next_{};
  Time begin_{};
  Time first_{}; // message
  Time last_{};
  std::uint64_t shown_messages_ = 0;
  std::uint64_t shown_bytes_ = 0;
};

// The callback of a command that makes a tool with `arguments` and runs it; `live` makes the
// socket, runs the tool and gives the exit status.
[[nodiscard]] Result<int> run_tool(const ToolOptions& arguments,
                                   const std::function<Result<int>(SocketTool&)>& live);

} // namespace fanin::command
