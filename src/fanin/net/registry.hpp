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

class TransportRegistry {
public:
  // Errors: usage, if there is a transport for that scheme already.
  [[nodiscard]] Result<> add(std::string scheme, TransportFactory factory) {
    if (find(scheme) != nullptr) {
      return fail(ErrorKind::usage, fmt::format("there is a transport for \"{}\" already", scheme));
    }
    entries_.emplace_back(std::move(scheme), std::move(factory));
    return {};
  }
  [[nodiscard]] const TransportFactory* find(std::string_view scheme) const { // null: none
    for (const auto& [known, factory] : entries_) {
      if (known == scheme) return &factory;
    }
    return nullptr;
  }
  [[nodiscard]] std::vector<std::string> schemes() const {
    std::vector<std::string> names;
    for (const auto& [scheme, factory] : entries_) names.push_back(scheme);
    return names;
  }

private:
  std::vector<std::pair<std::string, TransportFactory>> entries_;
};

// Those that come with fanin, to a registry that has none of them yet.
void add_built_in_transports(TransportRegistry& registry);

} // namespace fanin::net
