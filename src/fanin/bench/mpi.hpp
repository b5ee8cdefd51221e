// MPI as a peer: fanin-mpi-peer, a program beside the command, started by mpirun as two ranks of
// this host. It measures what the others do; libfanin does not depend on MPI.
#pragma once

#include "fanin/base/result.hpp"
#include "fanin/bench/ends.hpp"
#include "fanin/bench/spec.hpp"

namespace fanin::bench {

// Whether it can be run here. Errors: unsupported, with how to get it.
[[nodiscard]] Result<> find_mpi(const Spec& spec);
[[nodiscard]] Result<Sample> run_mpi(const Spec& spec, const Window& window);

} // namespace fanin::bench
