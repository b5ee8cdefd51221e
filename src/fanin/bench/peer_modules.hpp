// Contenders that need a library are in shared modules, so that the command is not linked to it.
#pragma once

#include "fanin/base/export.hpp"
#include "fanin/base/result.hpp"
#include "fanin/bench/ends.hpp"
#include "fanin/bench/spec.hpp"

// The functions of these modules, by the name of the module.
extern "C" {
// bench_ofi: bare_fabric_ends(). Small messages of a stream travel together in pages of spec.page
// bytes, large ones in pieces of that. A message of a round trip is one transfer, whatever its
// size.
FANIN_INTERNAL_API void fanin_bare_fabric(const fanin::bench::Spec& spec,
                                          fanin::Result<fanin::bench::Ends>& ends);
// bench_zmq: zeromq_ends().
FANIN_INTERNAL_API void fanin_zeromq(const fanin::bench::Spec& spec,
                                     fanin::Result<fanin::bench::Ends>& ends);
}
