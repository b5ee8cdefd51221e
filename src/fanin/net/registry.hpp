// The kinds of transport there are, by scheme: who starts a process fills the table explicitly, and
// a plug-in may add to it.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "fanin/base/log.hpp"
#include "fanin/net/loop.hpp"
#include "fanin/net/transport.hpp"

namespace fanin::net {

// Makes a transport for one loop; both live on the loop's thread, and the loop is there longer.
// `log` is for what a transport tells people.
using TransportFactory =
    std::function<Result<std::unique_ptr<Transport>>(Loop& loop, const LogFunction& log)>;

// Makes one of several transports of a kind, by the second part of its scheme: "tcp" of ofi+tcp.
using TransportFamily = std::function<Result<std::unique_ptr<Transport>>(
    Loop& loop, const LogFunction& log, std::string_view member)>;

// Lays a transport over another one (net/decorator.hpp).
using TransportDecorator = std::function<std::unique_ptr<Transport>(
    Loop& loop, const LogFunction& log, std::unique_ptr<Transport> below)>;

class TransportRegistry {
public:
  // Errors: usage, if there is a transport for that scheme already.
  [[nodiscard]] Result<> add(std::string scheme, TransportFactory factory) {
    if (find(scheme)) {
      return fail(ErrorKind::usage, fmt::format("there is a transport for \"{}\" already", scheme));
    }
    entries_.emplace_back(std::move(scheme), std::move(factory));
    return {};
  }
  // For name+ANYTHING://; the family knows which there are.
  void add_family(std::string name, TransportFamily family) {
    families_.emplace_back(std::move(name), std::move(family));
  }
  // For name+tcp:// and every other scheme there is or will be.
  void add_decorator(std::string name, TransportDecorator decorator) {
    decorators_.emplace_back(std::move(name), std::move(decorator));
  }
  // Empty: there is none. "trace+fault+tcp" is tcp under fault under trace.
  [[nodiscard]] TransportFactory find(std::string_view scheme) const;
  // For people: "tcp", "trace+...".
  [[nodiscard]] std::vector<std::string> schemes() const;

private:
  std::vector<std::pair<std::string, TransportFactory>> entries_;
  std::vector<std::pair<std::string, TransportFamily>> families_;
  std::vector<std::pair<std::string, TransportDecorator>> decorators_;
};

// Those that come with fanin, to a registry that has none of them yet.
void add_built_in_transports(TransportRegistry& registry);

} // namespace fanin::net
