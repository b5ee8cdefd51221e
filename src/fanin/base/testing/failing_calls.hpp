// System calls that fail where nothing else brings the kernel to it. A test executable that has
// failing_calls.cpp among its sources makes these calls through it, and the libraries with it.
#pragma once

#include <cstdint>

namespace fanin {

// As long as it lives, calls of this kind on its thread fail. One at a time.
class FailingCalls {
public:
  enum class Kind : std::uint8_t {
    watch, // epoll_ctl() that adds a descriptor
    receive, // recvmsg()
    bind, // to an address
    take, // recvmsg() that does more than look (MSG_PEEK)
  };

  FailingCalls(Kind kind, int error); // an errno value
  ~FailingCalls();
  FailingCalls(const FailingCalls&) = delete;
  FailingCalls& operator=(const FailingCalls&) = delete;
  // How many have failed.
  [[nodiscard]] int count() const;
};

} // namespace fanin
