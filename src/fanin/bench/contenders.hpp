// The contenders of the benchmarks of messages, by name: fanin's sockets and their peers.
#pragma once

#include "fanin/base/result.hpp"
#include "fanin/bench/ends.hpp"
#include "fanin/bench/spec.hpp"

namespace fanin::bench {

// By spec.peer: "fanin"; "raw": the bare loop over that kind of network; "fair": the same with
// checksums (nxn); "memcpy"; "zeromq". Errors: unsupported: not built in, or not in this pattern or
// over this URL.
[[nodiscard]] Result<Ends> make_ends(const Spec& spec);

} // namespace fanin::bench
