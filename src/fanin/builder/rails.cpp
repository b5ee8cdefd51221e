#include "fanin/builder/rails.hpp"
#include "fanin/base/try.hpp"

namespace fanin::builder {

std::string rails_text(std::span<const net::Url> rails) {
  std::string text;
  for (const net::Url& url : rails) text += (text.empty() ? "" : "\n") + url.text();
  return text;
}

Result<std::vector<net::Url>> parse_rails(std::string_view text) {
  std::vector<net::Url> rails;
  for (bool more = true; more;) {
    const auto end = text.find('\n');
    auto url = FANIN_TRY(net::Url::parse(text.substr(0, end)));
    rails.push_back(std::move(url));
    more = end != std::string_view::npos;
    if (more) text.remove_prefix(end + 1);
  }
  return rails;
}

Result<std::vector<net::Listener>> listen_on_rails(const NodeEnvironment& environment,
                                                   std::span<const net::Url> rails,
                                                   const net::ConnectionOptions& options) {
  std::vector<net::Listener> listeners;
  Error failure{ErrorKind::usage, "no address to listen at"};
  for (const net::Url& url : rails) {
    const auto transport = FANIN_TRY(environment.transports->find(url));
    auto listener = net::Listener::make(*transport, url, options);
    if (listener) {
      listeners.push_back(std::move(*listener));
      continue;
    }
    failure = listener.error();
    if (rails.size() > 1) environment.log(LogLevel::error, failure.text);
  }
  if (listeners.empty()) return std::unexpected(failure);
  return listeners;
}

std::vector<net::Url> urls_of(std::span<const net::Listener> listeners) {
  std::vector<net::Url> urls;
  for (const net::Listener& listener : listeners) urls.push_back(listener.url());
  return urls;
}

} // namespace fanin::builder
