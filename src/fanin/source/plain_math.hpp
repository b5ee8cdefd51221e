/// \file
/// Logarithm, exponential and normal quantile from plain IEEE additions, multiplications and
/// divisions, so that every compiler and C library gives the same bits. The last digits of libm
/// differ between platforms, and so would sizes that are rounded from them. For set-up code, not
/// for the hot path.
#pragma once

namespace fanin::source::detail {

// x > 0 and normal. Relative error below 1e-14.
[[nodiscard]] double plain_log(double x);
// |x| < 700. Relative error below 1e-14.
[[nodiscard]] double plain_exp(double x);
// The quantile of the standard normal distribution at p, 0 < p < 1. Relative error below 2e-9.
[[nodiscard]] double normal_quantile(double p);

} // namespace fanin::source::detail
