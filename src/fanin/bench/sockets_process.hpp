// What the processes of fanin's sockets have in common: a Context, and the roles that run in it,
// one a process, or over inproc all in one.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "fanin/base/try.hpp"
#include "fanin/bench/ends.hpp"
#include "fanin/bench/payload.hpp"
#include "fanin/bench/spec.hpp"
#include "fanin/message/sockets.hpp"

namespace fanin::bench {

class Role {
public:
  virtual ~Role() = default;
};
using MadeRole = Result<std::unique_ptr<Role>>;

// How a pattern is made of roles.
struct Roles {
  std::size_t listeners = 1;
  std::size_t connectors = 1;
  bool connectors_count = false;
  bool latency = false;
  std::uint64_t message = 0;  // bytes of the largest
  bool one_page = false; // a message is to fit into one page
  // Gives the real address in `url`, which is where to listen.
  std::function<MadeRole(message::Context&, std::size_t index, net::Url& url, ProcessStats&)>
      listen;
  std::function<MadeRole(message::Context&, std::size_t index, const std::vector<net::Url>&,
                         ProcessStats&)>
      connect;
};

inline constexpr std::uint64_t send_page = message::ContextOptions::send_page;

// HighThroughputSenderOptions::send_queue_bytes: where memory is shared, a message of many pages
// stays where it was written if there is room for two of them and the pages that they begin and end
// in. Elsewhere less is faster, since it stays in cache.
[[nodiscard]] inline std::uint64_t stream_queue_bytes(const Spec& spec) {
  constexpr std::uint64_t least = message::ContextOptions::send_queue;
  return spec.url.scheme == "shm" ? std::max(least, 2 * (spec.size + 2 * send_page)) : least;
}

[[nodiscard]] Ends to_ends(const Spec& spec, const Roles& roles);

// Offers message after message, as many as are taken, and a bounded number a turn.
template <class Sender> // offer(): net::SendOutcome, or none: nothing to offer in this turn
class Feeder final : public net::Service {
public:
  Feeder(message::Context& context, std::uint64_t size, Sender& sender)
      : per_turn_(static_cast<std::size_t>(
            std::clamp<std::uint64_t>(bytes_per_turn / size, 1, messages_per_turn))),
        sender_(sender) {
    context.loop().add(*this);
  }
  void open() { open_ = true; } // connected, or writable again
  bool poll() override {
    std::size_t taken = 0;
    while (open_ && taken < per_turn_) {
      const std::optional<net::SendOutcome> outcome = sender_.offer();
      if (!outcome) break;
      open_ = *outcome == net::SendOutcome::accepted;
      if (open_) ++taken;
    }
    return taken > 0;
  }

private:
  static constexpr std::uint64_t messages_per_turn = 4096;
  static constexpr std::uint64_t bytes_per_turn = 256U << 10;
  std::size_t per_turn_;
  Sender& sender_;
  bool open_ = false;
};

// What a receiver has found in a message.
struct Found {
  std::uint64_t messages = 1; // 0: damage
  std::uint64_t bytes = 0; // of payload
};

[[nodiscard]] inline Found touched(message::Message& message, bool read) {
  for (std::size_t i = 0; i < message.pieces(); ++i)
    if (i == 0 || read) touch(message.piece(i).bytes(), read);
  return {.bytes = message.size()};
}

// Takes what has come. `Socket` is a HighThroughputReceiver or a Subscriber. False: damage.
template <class Socket, class Look>
bool take_all(Socket& socket, message::Message& message, ProcessStats& stats, const Look& look) {
  Found sum{.messages = 0};
  bool good = true;
  while (good && socket.recv(message)) {
    const Found found = look(message);
    good = found.messages > 0;
    sum.messages += found.messages;
    sum.bytes += found.bytes;
  }
  message = {};
  stats.messages.add(sum.messages);
  stats.bytes.add(sum.bytes);
  return good;
}

template <class Look> // Found(message::Message&)
class ReceiverRole final : public Role {
public:
  static MadeRole make(message::Context& context, net::Url& url, ProcessStats& stats, Look look) {
    auto role = std::make_unique<ReceiverRole>();
    ReceiverRole& self = *role;
    self.socket_ = FANIN_TRY(message::HighThroughputReceiver::listen(
        context, url,
        {.message_max = message_size_max,
         .on_ready =
             [&self, &context, &stats, look] {
               if (take_all(*self.socket_, self.message_, stats, look)) return;
               stats.note("a damaged record");
               context.stop();
             },
         .on_connected = {},
         .on_disconnected = [&context](auto, auto) { context.stop(); }}));
    url = self.socket_->url();
    return role;
  }

private:
  message::Message message_;
  std::unique_ptr<message::HighThroughputReceiver> socket_;
};

// The roles of each pattern, a file each.
[[nodiscard]] Roles stream_roles(const Spec& spec);
[[nodiscard]] Roles roundtrip_roles(const Spec& spec);
[[nodiscard]] Roles pubsub_roles(const Spec& spec);
[[nodiscard]] Roles nxn_roles(const Spec& spec);

} // namespace fanin::bench
