#include "fanin/net/decorator.hpp"
#include "fanin/base/try.hpp"

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

// What went wrong below, with the scheme as it was given.
template <class T>
Result<T> Decorator::named(Result<T> result, const Url& below, const Url& given) {
  if (result) return result;
  std::string& text = result.error().text;
  const std::string scheme = below.scheme + "://";
  if (const auto at = text.find(scheme); at != text.npos) {
    text.replace(at, scheme.size(), given.scheme + "://");
  }
  return result;
}

Result<> Decorator::check_address(const Url& url) const {
  const auto address = FANIN_TRY(url_below(url));
  return named(below_->check_address(address), address, url);
}

Result<ListenerId> Decorator::listen(const Url& url, const ConnectionOptions& options) {
  const auto address = FANIN_TRY(url_below(url));
  return named(below_->listen(address, options), address, url);
}

Url Decorator::listening_url(ListenerId listener) const {
  Url url = below_->listening_url(listener);
  if (!url.scheme.empty()) url.scheme = fmt::format("{}+{}", name_, url.scheme);
  return url;
}

Result<ConnectionId> Decorator::connect(const Url& url, const ConnectionOptions& options) {
  const auto address = FANIN_TRY(url_below(url));
  return named(below_->connect(address, options), address, url);
}

void Decorator::dispatching(std::span<Event> events) {
  Transport::dispatching(events);
  below_->dispatching(events);
}

} // namespace fanin::net
