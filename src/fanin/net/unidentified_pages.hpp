/// \file
/// Pages of a transport for the messages of unidentified peers
/// (ConnectionOptions::peers_must_identify), which are small. So what such a peer begins and leaves
/// pins nothing of the receive pool, and a hello arrives while that pool is empty.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>

#include "fanin/base/try.hpp"
#include "fanin/memory/page_pool.hpp"
#include "fanin/net/page_filler.hpp"
#include "fanin/net/unidentified_peers.hpp"

namespace fanin::net {

class UnidentifiedPages {
public:
  /// For so many peers with one message each. The memory is touched when it is needed.
  explicit UnidentifiedPages(std::uint32_t peers) : peers_(peers) {}

  /// Errors: as of PagePool::make().
  [[nodiscard]] Result<> reserve() {
    if (filler_ != nullptr) return {};
    pool_ = FANIN_TRY(memory::PagePool::make({.page_size = 2 * unidentified_message_max,
                                              .pages = std::max(peers_, 2U),
                                              .arena = {.reserve_only = true}}));
    filler_ = std::make_unique<PageFiller>(*pool_);
    return {};
  }
  /// After reserve().
  [[nodiscard]] PageFiller& filler() { return *filler_; }

private:
  std::uint32_t peers_;
  std::unique_ptr<memory::PagePool> pool_;
  std::unique_ptr<PageFiller> filler_;
};

} // namespace fanin::net
