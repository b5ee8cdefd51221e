/// \file
/// inproc://name: both ends in this process, on one loop and one thread. Messages are copied once,
/// into the receiver's page, as with every other network, so that the same code runs with the same
/// pools.
#pragma once

#include "fanin/net/in_memory/memory_transport.hpp"

namespace fanin::net {

namespace detail {
// A base, so that it is made before the transport that uses it and ends after it.
struct InprocNetwork {
  in_memory::Network network{in_memory::NetworkOptions{.scheme = "inproc"}};
};
} // namespace detail

class InprocTransport final : private detail::InprocNetwork, public in_memory::MemoryTransport {
public:
  InprocTransport() : MemoryTransport(network, "", 0) {}
};

} // namespace fanin::net
