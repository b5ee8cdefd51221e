/// \file
/// The table of transports by scheme. Code that starts a process fills it; plug-ins may add to it.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "fanin/base/export.hpp"
#include "fanin/base/log.hpp"
#include "fanin/net/loop.hpp"
#include "fanin/net/transport.hpp"

namespace fanin::net {

/// Makes a transport for one loop. Both live on the loop's thread, and the loop must outlive the
/// transport. `log` gets the transport's log lines.
using TransportFactory =
    std::function<Result<std::unique_ptr<Transport>>(Loop& loop, const LogFunction& log)>;

/// How many pages of a receive pool a transport takes before messages come, for so many connections
/// at `url` that share the pool. Empty: none. It is called before the transport is made, and on
/// hosts that cannot make it.
using PagesInAdvance = std::function<std::uint32_t(const Url& url, std::uint32_t connections)>;

/// What has to be known of a transport before it is made.
struct TransportTraits {
  PagesInAdvance pages{};
  bool shares_memory = false; ///< as Transport::shares_memory()
};

/// Makes one of several transports of a kind. `member` is the second part of the scheme: "tcp" of
/// ofi+tcp.
using TransportFamily = std::function<Result<std::unique_ptr<Transport>>(
    Loop& loop, const LogFunction& log, std::string_view member)>;

/// Makes a transport above another one (net/decorator.hpp).
using TransportDecorator = std::function<std::unique_ptr<Transport>(
    Loop& loop, const LogFunction& log, std::unique_ptr<Transport> below)>;

class TransportRegistry {
public:
  /// Errors: usage, if there is a transport for that scheme already.
  [[nodiscard]] Result<> add(std::string scheme, TransportFactory factory,
                             TransportTraits traits = {}) {
    if (find(scheme)) {
      return fail(ErrorKind::usage, fmt::format("there is a transport for \"{}\" already", scheme));
    }
    entries_.push_back({std::move(scheme), std::move(factory), std::move(traits)});
    return {};
  }
  /// Adds a family for name+ANYTHING://; the family knows its members.
  void add_family(std::string name, TransportFamily family, TransportTraits traits = {}) {
    families_.push_back({std::move(name), std::move(family), std::move(traits)});
  }
  /// Adds a decorator for name+tcp:// and every other scheme.
  void add_decorator(std::string name, TransportDecorator decorator) {
    decorators_.emplace_back(std::move(name), std::move(decorator));
  }
  /// The factory for a scheme; empty if there is none. In "trace+fault+tcp", trace is above fault,
  /// and fault above tcp.
  [[nodiscard]] FANIN_API TransportFactory find(std::string_view scheme) const;
  /// The pages that the transport of an address takes in advance; 0 for an unknown scheme.
  [[nodiscard]] FANIN_INTERNAL_API std::uint32_t pages_in_advance(const Url& url,
                                                                  std::uint32_t connections) const;
  /// Whether the transport of an address shares memory; false for an unknown scheme.
  [[nodiscard]] FANIN_INTERNAL_API bool shares_memory(const Url& url) const;
  /// For messages: "tcp", "trace+...".
  [[nodiscard]] FANIN_API std::vector<std::string> schemes() const;

private:
  template <class Make>
  struct Entry {
    std::string name;
    Make make;
    TransportTraits traits;
  };
  struct Known {
    TransportFactory make;
    const TransportTraits* traits = nullptr; // null: the scheme is not known
  };
  [[nodiscard]] Known look_up(std::string_view scheme) const;

  std::vector<Entry<TransportFactory>> entries_;
  std::vector<Entry<TransportFamily>> families_;
  std::vector<std::pair<std::string, TransportDecorator>> decorators_;
};

/// Adds the transports that come with fanin. The registry must not have any of them.
FANIN_API void add_built_in_transports(TransportRegistry& registry);

} // namespace fanin::net
