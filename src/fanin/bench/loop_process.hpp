// What a process of a benchmark that uses fanin consists of: one loop with one transport.
#pragma once

#include <memory>

#include "fanin/base/clock.hpp"
#include "fanin/base/result.hpp"
#include "fanin/memory/page_pool.hpp"
#include "fanin/net/link.hpp"
#include "fanin/net/loop.hpp"

namespace fanin::bench {

class LoopProcess {
public:
  // The transport of `url`'s scheme. SIGTERM wakes the loop. Errors: unsupported.
  [[nodiscard]] static Result<std::unique_ptr<LoopProcess>> make(const net::Url& url,
                                                                 net::WaitPolicy wait);

  [[nodiscard]] net::Loop& loop() { return loop_; }
  [[nodiscard]] net::Transport& transport() { return *transport_; }
  [[nodiscard]] net::TransportSet& transports() { return transports_; }

private:
  explicit LoopProcess(net::WaitPolicy wait) : loop_(clock_, wait) {}
  MonotonicClock clock_;
  net::Loop loop_;
  std::unique_ptr<net::Transport> transport_;
  net::TransportSet transports_;
};

// At least one page. `shared`: other processes may read it (Transport::shares_memory()).
[[nodiscard]] Result<std::unique_ptr<memory::PagePool>>
make_pool(std::uint32_t page, std::uint64_t bytes, bool shared = false);

} // namespace fanin::bench
