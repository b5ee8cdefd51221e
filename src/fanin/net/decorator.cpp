#include "fanin/net/decorator.hpp"

#include <fmt/format.h>

namespace fanin::net {

Result<Url> Decorator::url_below(const Url& url) const {
  const bool ours =
      url.scheme.starts_with(name_) && url.scheme.substr(name_.size()).starts_with('+');
  if (!ours) {
    return fail(ErrorKind::usage,
                fmt::format("{} is not an address of {}+...://", url.text(), name_));
  }
  Url below = url;
  below.scheme.erase(0, name_.size() + 1);
  return below;
}

Result<ListenerId> Decorator::listen(const Url& url, const ConnectionOptions& options) {
  const auto address = url_below(url);
  if (!address) return std::unexpected(address.error());
  return below_->listen(*address, options);
}

Url Decorator::listening_url(ListenerId listener) const {
  Url url = below_->listening_url(listener);
  if (!url.scheme.empty()) url.scheme = fmt::format("{}+{}", name_, url.scheme);
  return url;
}

Result<ConnectionId> Decorator::connect(const Url& url, const ConnectionOptions& options) {
  const auto address = url_below(url);
  if (!address) return std::unexpected(address.error());
  return below_->connect(*address, options);
}

void Decorator::dispatching(std::span<Event> events) {
  Transport::dispatching(events);
  below_->dispatching(events);
}

} // namespace fanin::net
