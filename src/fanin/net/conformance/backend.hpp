// What the conformance suite needs to know of a transport under test. See suite.hpp.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "fanin/net/loop.hpp"
#include "fanin/net/transport.hpp"
#include "fanin/net/url.hpp"

namespace fanin::net::conformance {

// Two sides that can reach each other, driven from one thread. They may be one transport.
class Backend {
public:
  Backend() = default;
  Backend(const Backend&) = delete;
  Backend& operator=(const Backend&) = delete;
  virtual ~Backend() = default;

  [[nodiscard]] virtual Transport& server() = 0;
  [[nodiscard]] virtual Transport& client() = 0;
  // Where the server can listen; with port 0.
  [[nodiscard]] virtual Url address() const = 0;
  // Where nobody listens.
  [[nodiscard]] virtual Url nobody() const = 0;
  // Lets both sides run a little. False if nothing was done.
  virtual bool turn() = 0;
  // The client's process dies without a word; client() is not used any more. False: there is only
  // one process.
  virtual bool kill_client() = 0;
  // The loop of both sides, where one runs in real time and can sleep.
  [[nodiscard]] virtual Loop* sleeping_loop() { return nullptr; }
};

struct Parameter {
  std::string name; // in the names of tests: letters and digits
  std::function<std::unique_ptr<Backend>()> make;
  // Whether what is sent lies in memory that other processes may read.
  bool shared_pools = false;
};

} // namespace fanin::net::conformance
