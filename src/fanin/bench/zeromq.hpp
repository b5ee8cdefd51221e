// ZeroMQ as a peer: PUSH and PULL, PAIR, PUB and SUB, with its default settings. Over ipc where
// fanin's URL is of this host only. libzmq is loaded by the processes that use it, so that
// libfanin does not depend on it.
#pragma once

#include "fanin/base/result.hpp"
#include "fanin/bench/ends.hpp"
#include "fanin/bench/spec.hpp"

namespace fanin::bench {

// Errors: unsupported, with how to get it.
[[nodiscard]] Result<Ends> zeromq_ends(const Spec& spec);

} // namespace fanin::bench
