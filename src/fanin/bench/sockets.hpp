// fanin's message sockets as contenders: high throughput (stream, nxn), low latency (round trip),
// publish and subscribe. A process has one Context, hence one loop.
#pragma once

#include "fanin/base/result.hpp"
#include "fanin/bench/ends.hpp"
#include "fanin/bench/spec.hpp"

namespace fanin::bench {

// Errors: unsupported: no such transport.
[[nodiscard]] Result<Ends> sockets_ends(const Spec& spec);

} // namespace fanin::bench
