#include "reading.hpp"

#include <charconv>

#include "fanin/net/registry.hpp"
#include "fanin/net/tcp_socket.hpp"

namespace fanin::command {

std::function<std::string(const std::string&)> natural_number(std::uint64_t least) {
  return [least](const std::string& word) -> std::string {
    std::uint64_t value = 0;
    const char* const end = word.data() + word.size();
    const auto [stopped, error] = std::from_chars(word.data(), end, value);
    if (error == std::errc{} && stopped == end && value >= least) return {};
    return fmt::format("{}: must be a whole number, at least {}", word, least);
  };
}

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

void Reading::congestion(const std::string& name) {
  if (const auto known = net::check_congestion(name); !known)
    fail_with("--congestion", known.error().text);
}

} // namespace fanin::command
