#include "reading.hpp"

#include "fanin/net/registry.hpp"

namespace fanin::command {

net::Url Reading::url(const char* option, const std::string& text) {
  const auto url = net::Url::parse(text);
  if (!keep(option, url)) return {};
  net::TransportRegistry registry;
  net::add_built_in_transports(registry);
  if (registry.find(url->scheme) == nullptr) {
    fail_with(option, fmt::format("there is no transport '{}': {}", url->scheme,
                                  fmt::join(registry.schemes(), ", ")));
  }
  return *url;
}

} // namespace fanin::command
