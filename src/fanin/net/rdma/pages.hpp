// The number of pages of its receive pool that a connection keeps posted, as its address says.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string_view>

#include "fanin/base/result.hpp"
#include "fanin/net/url.hpp"

namespace fanin::net::rdma {

inline constexpr std::string_view pages_option = "posted";
inline constexpr std::string_view share_option = "share_above"; // only where endpoints can share

struct ReceiveOptions {
  std::uint32_t pages = 2;
  // So many connections of a receive pool have their own receives. Those beyond share theirs, in
  // half as many pages.
  std::uint32_t share_above = 32;
};

// Errors: usage.
[[nodiscard]] Result<ReceiveOptions> receive_options(const Url& url);
// Pages for unidentified peers, one for each; further peers wait.
inline constexpr std::uint32_t unidentified_pages = 8;
[[nodiscard]] constexpr std::uint32_t unidentified_pages_of(std::uint32_t pool_pages) {
  return std::clamp(pool_pages / 8, 1U, unidentified_pages);
}
// The pages of so many connections with one receive pool, and of unidentified peers; with providers
// whose endpoints cannot share receives, and with those whose endpoints can.
[[nodiscard]] std::uint32_t pages_without_sharing(const Url& url, std::uint32_t connections);
[[nodiscard]] std::uint32_t pages_with_sharing(const Url& url, std::uint32_t connections);

} // namespace fanin::net::rdma
