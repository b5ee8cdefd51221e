// What theory says of a crossbar with an input FIFO at each port.
#pragma once

#include <cstddef>

namespace fanin::fabric {

// Largest crossbar whose chain is computed exactly.
inline constexpr std::size_t crossbar_exact_max = 16;

// The throughput of an N x N crossbar whose input FIFOs are never empty, for cells of one size
// with independent uniform destinations: the stationary state of the Markov chain of what is at
// the heads of the FIFOs. A share of the links' rate, 0 to 1. `ports` is 1 to crossbar_exact_max.
// Source: M. J. Karol, M. G. Hluchyj, S. P. Morgan, "Input Versus Output Queueing on a
// Space-Division Packet Switch", IEEE Trans. Commun. 35 (1987) 1347.
[[nodiscard]] double crossbar_saturation(std::size_t ports);

// Its limit for many ports: 2 - sqrt(2).
[[nodiscard]] double crossbar_saturation_limit();

} // namespace fanin::fabric
