// One control message that goes ahead of all others, without a number: what opens a connection, or
// acknowledges what has come over it. It only sends: ControlServer and ReadoutLinks judge a hello.
#pragma once

#include <cstddef>
#include <vector>

#include "fanin/builder/control/control_frame.hpp"
#include "fanin/memory/page_pool.hpp"
#include "fanin/net/link.hpp"

namespace fanin::builder {

// It is kept outside of the pool until a page is there and the link takes it, so that an empty pool
// delays it and is not mistaken for a peer that does not read. Thread: the loop of its link.
class Greeting {
public:
  // In place of the one before. `pool` outlives it, and half a page of it has room for the message.
  template <class Body, class... Parts>
  void set(net::Link link, memory::PagePool& pool, const Body& body, const Parts&... parts) {
    link_ = link;
    pool_ = &pool;
    failed_ = false;
    put_message([this](wire::MessageType type, std::size_t size) { return frame(type, size); },
                body, parts...);
  }
  // Sends it if that is possible now. Called at the end of a turn, and when the link is writable.
  void flush();

  [[nodiscard]] bool sent() const { return frame_.empty(); }
  [[nodiscard]] bool failed() const { return failed_; } // the peer takes no message of its size

private:
  std::byte* frame(wire::MessageType type, std::size_t size);

  net::Link link_;
  memory::PagePool* pool_ = nullptr;
  std::vector<std::byte> frame_;
  bool failed_ = false;
};

} // namespace fanin::builder
