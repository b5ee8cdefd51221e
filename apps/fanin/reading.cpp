#include "reading.hpp"

#include "fanin/base/number.hpp"
#include "fanin/net/registry.hpp"

namespace fanin::command {

std::function<std::string(const std::string&)> natural_number(std::uint64_t least) {
  return [least](const std::string& word) -> std::string {
    if (const auto value = parse_number<std::uint64_t>(word); value && *value >= least) return {};
    return fmt::format("{}: must be a whole number, at least {}", word, least);
  };
}

std::vector<std::string> split_at_commas(std::string_view text) {
  std::vector<std::string> parts;
  while (true) {
    const auto end = text.find(',');
    parts.emplace_back(text.substr(0, end));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

std::vector<std::uint32_t> Reading::sizes(const char* option, const std::string& text,
                                          std::uint32_t most) {
  std::vector<std::uint32_t> sizes;
  const auto one = [&](std::string_view word) {
    std::uint32_t value = 0;
    size(option, std::string(word), value);
    if (value == 0 || value > most)
      fail_with(option, fmt::format("\"{}\": from 1B to {}", word, format_size(most)));
    return value;
  };
  for (const auto& word : split_at_commas(text)) {
    const auto dots = word.find("..");
    sizes.push_back(one(std::string_view{word}.substr(0, dots)));
    if (dots == std::string::npos) continue;
    const std::uint32_t last = one(std::string_view{word}.substr(dots + 2));
    if (last < sizes.back()) fail_with(option, word + ": from the smaller to the larger");
    for (std::uint64_t size = 4; size < last; size *= 4) {
      if (size > sizes.back()) sizes.push_back(static_cast<std::uint32_t>(size));
    }
    sizes.push_back(last);
  }
  return sizes;
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

} // namespace fanin::command
