#include "fanin/net/rdma/pages.hpp"
#include "fanin/base/number.hpp"
#include "fanin/base/try.hpp"

#include <algorithm>

#include <fmt/format.h>

namespace fanin::net::rdma {
namespace {

constexpr std::uint32_t pages_least = 2;
constexpr std::uint32_t pages_most = 32;
constexpr std::uint32_t connections_most = 1'000'000;

// Untouched where the address does not have it.
Result<> take(const Url& url, std::string_view name, std::uint32_t least, std::uint32_t most,
              std::uint32_t& to) {
  const auto option = url.options.find(std::string(name));
  if (option == url.options.end()) return {};
  const auto number = parse_number<std::uint32_t>(option->second);
  if (number && *number >= least && *number <= most) {
    to = *number;
    return {};
  }
  return fail(ErrorKind::usage,
              fmt::format("{}: {} is a number from {} to {}", url.text(), name, least, most));
}

} // namespace

Result<ReceiveOptions> receive_options(const Url& url) {
  ReceiveOptions options;
  FANIN_TRY(take(url, pages_option, pages_least, pages_most, options.pages));
  FANIN_TRY(take(url, share_option, 0, connections_most, options.share_above));
  return options;
}

std::uint32_t pages_without_sharing(const Url& url, std::uint32_t connections) {
  const ReceiveOptions options = receive_options(url).value_or(ReceiveOptions{});
  return connections * options.pages + unidentified_pages;
}

std::uint32_t pages_with_sharing(const Url& url, std::uint32_t connections) {
  const ReceiveOptions options = receive_options(url).value_or(ReceiveOptions{});
  const std::uint32_t own = std::min(connections, options.share_above);
  const std::uint32_t shared = (connections - own) * ((options.pages + 1) / 2);
  return own * options.pages + shared + (shared > 0 ? 1 : 0) + unidentified_pages;
}

} // namespace fanin::net::rdma
