/// \file
/// What the conformance suite needs to know of a transport under test. See suite.hpp.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <string_view>

#include "fanin/net/loop.hpp"
#include "fanin/net/transport.hpp"
#include "fanin/net/url.hpp"

namespace fanin::net::conformance {

/// A peer that uses the network below the transport. It has connected, and sends nothing by itself.
class RawPeer {
public:
  RawPeer() = default;
  RawPeer(const RawPeer&) = delete;
  RawPeer& operator=(const RawPeer&) = delete;
  virtual ~RawPeer() = default;
  /// Introduces itself and begins a message of `size` bytes, of which it sends only the first.
  /// False: over this network messages come as a whole, or not at all.
  [[nodiscard]] virtual bool begin_message(std::uint32_t size) {
    (void)size;
    return false;
  }
};

/// Two sides that can reach each other, driven from one thread. They may be one transport.
class Backend {
public:
  Backend() = default;
  Backend(const Backend&) = delete;
  Backend& operator=(const Backend&) = delete;
  virtual ~Backend() = default;

  [[nodiscard]] virtual Transport& server() = 0;
  [[nodiscard]] virtual Transport& client() = 0;
  /// An address at which the server can listen, with port 0.
  [[nodiscard]] virtual Url address() const = 0;
  /// An address at which nobody listens.
  [[nodiscard]] virtual Url nobody() const = 0;
  /// Lets both sides run a little. False if nothing was done. Of real time a turn should take
  /// little (2 ms), also where it is late: a busy machine is no reason to give a peer up.
  virtual bool turn() = 0;
  /// Kills the client's process; client() is not used any more. False: there is only one process.
  virtual bool kill_client() = 0;
  /// Connects to a listener of the server, and sends nothing. Null: there is no network below the
  /// transport, or a peer introduces itself by its request to connect.
  [[nodiscard]] virtual std::unique_ptr<RawPeer> connect_raw(const Url& listener) {
    (void)listener;
    return nullptr;
  }
  /// False: a library below the transport keeps connections that have sent nothing to itself.
  [[nodiscard]] virtual bool meets_silent_peers() const { return true; }
  /// False: a closed connection may keep its pages for a second (verbs with shared receives).
  [[nodiscard]] virtual bool frees_pages_at_once() const { return true; }
  /// Lets so much time pass for both sides. False: their time cannot be moved.
  virtual bool pass(Duration time) {
    (void)time;
    return false;
  }
  /// The loop of both sides, where one runs in real time and can sleep.
  [[nodiscard]] virtual Loop* sleeping_loop() { return nullptr; }
};

/// How far the tests go. A transport that cannot go as far says so in its Parameter.
struct Limits {
  std::uint32_t largest_message = 8U << 20; ///< bytes, a multiple of 4096
  std::size_t connections = 64; ///< at once; fewer if the limit of open files is too low
  std::size_t scripts = 4; ///< random scripts (script.hpp)

  /// The values above; with FANIN_CONFORMANCE=full larger ones, which take minutes.
  [[nodiscard]] static Limits of_environment() {
    const char* const wish = std::getenv("FANIN_CONFORMANCE");
    if (wish == nullptr || std::string_view(wish) != "full") return {};
    return {.largest_message = 256U << 20, .connections = 4096, .scripts = 100};
  }
};

struct Parameter {
  std::string name; ///< in the names of tests: letters and digits
  std::function<std::unique_ptr<Backend>()> make;
  /// Whether what is sent lies in memory that other processes may read.
  bool shared_pools = false;
  Limits limits = Limits::of_environment();
  /// Whether a small message of an unidentified peer needs no page of the receive pool.
  bool small_without_pages = false;
  /// It takes messages of the transport below, and hands them out later.
  bool holds_messages = false;
  /// The library below leaks what is under way to a peer that dies (rxm of libfabric 1.17).
  bool leaks_at_death = false;
  std::size_t descriptors = 2; ///< open files of a connection, both ends together
  friend std::ostream& operator<<(std::ostream& out, const Parameter& parameter) {
    return out << parameter.name;
  }
};

} // namespace fanin::net::conformance
