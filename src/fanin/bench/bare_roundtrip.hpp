// The baseline of a round trip over TCP: one socket at each end, nothing else.
#pragma once

#include "fanin/bench/ends.hpp"
#include "fanin/bench/spec.hpp"

namespace fanin::bench {

[[nodiscard]] Ends bare_tcp_roundtrip(const Spec& spec);

} // namespace fanin::bench
