// Logarithm, exponential and normal quantile of plain IEEE additions, multiplications and
// divisions, so that every compiler and C library gives the same bits. libm does not: its last
// digits differ, and a size that is rounded from them differs with them. Set-up code, not for the
// hot path.
#pragma once

namespace fanin::source::detail {

// x > 0 and normal. Relative error below 1e-14.
[[nodiscard]] double plain_log(double x);
// |x| < 700. Relative error below 1e-14.
[[nodiscard]] double plain_exp(double x);
// Where the standard normal distribution reaches p, 0 < p < 1. Relative error below 2e-9.
[[nodiscard]] double normal_quantile(double p);

} // namespace fanin::source::detail
