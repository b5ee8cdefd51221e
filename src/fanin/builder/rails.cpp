#include "fanin/builder/rails.hpp"

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
    auto url = net::Url::parse(text.substr(0, end));
    if (!url) return std::unexpected(url.error());
    rails.push_back(std::move(*url));
    more = end != std::string_view::npos;
    if (more) text.remove_prefix(end + 1);
  }
  return rails;
}

} // namespace fanin::builder
