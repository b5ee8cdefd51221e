// Pages for the messages of peers that have connected and not said who they are
// (ConnectionOptions::strangers): small ones, a transport's own. What such a peer begins and leaves
// pins nothing that others need, and a hello gets through where the receive pool is empty.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>

#include "fanin/memory/page_pool.hpp"
#include "fanin/net/page_filler.hpp"
#include "fanin/net/unidentified_peers.hpp"

namespace fanin::net {

class UnidentifiedPages {
public:
  // For so many peers with a message each; touched as it is needed.
  explicit UnidentifiedPages(std::uint32_t peers) : peers_(peers) {}

  // Errors: as of PagePool::make().
  [[nodiscard]] Result<> reserve() {
    if (filler_ != nullptr) return {};
    auto pool = memory::PagePool::make({.page_size = 2 * unidentified_message_max,
                                        .pages = std::max(peers_, 2U),
                                        .arena = {.reserve_only = true}});
    if (!pool) return std::unexpected(pool.error());
    pool_ = std::move(*pool);
    filler_ = std::make_unique<PageFiller>(*pool_);
    return {};
  }
  // After reserve().
  [[nodiscard]] PageFiller& filler() { return *filler_; }

private:
  std::uint32_t peers_;
  std::unique_ptr<memory::PagePool> pool_;
  std::unique_ptr<PageFiller> filler_;
};

} // namespace fanin::net
