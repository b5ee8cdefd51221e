// The contenders of the benchmarks of messages, by name: fanin's sockets and their peers.
#pragma once

#include "fanin/base/result.hpp"
#include <cstddef>
#include <cstdint>
#include <functional>

#include "fanin/bench/ends.hpp"
#include "fanin/bench/measure.hpp"
#include "fanin/bench/spec.hpp"

namespace fanin::bench {

// By spec.peer: "fanin"; "raw": the bare loop over that kind of network; "fair": the same with
// checksums (nxn); "memcpy"; "zeromq". Errors: unsupported: not built in, or not in this pattern or
// over this URL.
[[nodiscard]] Result<Ends> make_ends(const Spec& spec);

// Of a bare loop, where nothing else is known.
inline constexpr std::uint64_t usual_page = 256U << 10;

// Makes the bare loop the one that is fastest here: its size of a page and, if it may poll, whether
// it polls. It need not. How many probes were dropped. Errors: as of find_fastest().
[[nodiscard]] Result<std::size_t> tune(Spec& spec, bool may_poll,
                                       const std::function<Result<Sample>(const Spec&)>& probe,
                                       const RoundOptions& options, const Progress& progress);

} // namespace fanin::bench
