#include "fanin/net/posted/pages.hpp"

#include <charconv>

#include <fmt/format.h>

namespace fanin::net::posted {
namespace {

constexpr std::uint32_t pages_least = 2;
constexpr std::uint32_t pages_most = 32;

} // namespace

Result<std::uint32_t> pages_of(const Url& url) {
  const auto option = url.options.find(std::string(pages_option));
  if (option == url.options.end()) return pages_least;
  const std::string& text = option->second;
  std::uint32_t pages = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), pages);
  if (error == std::errc{} && end == text.data() + text.size() && pages >= pages_least &&
      pages <= pages_most)
    return pages;
  return fail(ErrorKind::usage, fmt::format("{}: {} is a number from {} to {}", url.text(),
                                            pages_option, pages_least, pages_most));
}

std::uint32_t pages_planned(const Url& url) {
  std::string_view scheme = url.scheme;
  while (!scheme.starts_with("ofi+") && scheme != "verbs") { // decorators
    const auto plus = scheme.find('+');
    if (plus == std::string_view::npos) return 0;
    scheme.remove_prefix(plus + 1);
  }
  return pages_of(url).value_or(pages_least);
}

} // namespace fanin::net::posted
