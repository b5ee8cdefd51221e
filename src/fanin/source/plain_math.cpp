#include "fanin/source/plain_math.hpp"

#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "fanin/base/assert.hpp"

// Compiled with -ffp-contract=off: a fused multiply-add would round differently.

namespace fanin::source::detail {
namespace {

constexpr double ln2_high = 0x1.62e42fee00000p-1; // the low 21 bits are zero: k * ln2_high is exact
constexpr double ln2_low = 0x1.a39ef35793c76p-33;

template <std::size_t n>
double polynomial(const std::array<double, n>& coefficients, double x) { // highest power first
  double sum = 0;
  for (const double c : coefficients) sum = sum * x + c;
  return sum;
}

} // namespace

double plain_log(double x) {
  FANIN_ASSERT(x >= 0x1.0p-1022 && x <= 0x1.fffffffffffffp1023);
  const auto bits = std::bit_cast<std::uint64_t>(x);
  auto exponent = static_cast<int>(bits >> 52) - 1023;
  constexpr std::uint64_t mantissa = (std::uint64_t{1} << 52) - 1;
  double m = std::bit_cast<double>((bits & mantissa) | (std::uint64_t{1023} << 52));
  if (m > 1.4142135623730951) {
    m *= 0.5;
    ++exponent;
  }
  // ln m = 2 artanh t, as a series in t, |t| < 0.172.
  const double t = (m - 1) / (m + 1);
  const double square = t * t;
  double sum = 0;
  for (int k = 21; k >= 1; k -= 2) sum = sum * square + 1.0 / k;
  return exponent * ln2_high + (2 * t * sum + exponent * ln2_low);
}

double plain_exp(double x) {
  FANIN_ASSERT(x > -700 && x < 700);
  const double scaled = x * 1.4426950408889634; // 1 / ln 2
  const int power = static_cast<int>(scaled < 0 ? scaled - 0.5 : scaled + 0.5);
  const double r = (x - power * ln2_high) - power * ln2_low; // |r| < 0.35
  double sum = 1;
  for (int k = 14; k >= 1; --k) sum = 1 + sum * r / k;
  return sum * std::bit_cast<double>(static_cast<std::uint64_t>(power + 1023) << 52);
}

// P. J. Acklam's rational approximation (2003).
double normal_quantile(double p) {
  FANIN_ASSERT(p > 0 && p < 1);
  constexpr std::array a{-3.969683028665376e+01, 2.209460984245205e+02,  -2.759285104469687e+02,
                         1.383577518672690e+02,  -3.066479806614716e+01, 2.506628277459239e+00};
  constexpr std::array b{-5.447609879822406e+01, 1.615858368580409e+02,  -1.556989798598866e+02,
                         6.680131188771972e+01,  -1.328068155288572e+01, 1.0};
  constexpr std::array c{-7.784894002430293e-03, -3.223964580411365e-01, -2.400758277161838e+00,
                         -2.549732539343734e+00, 4.374664141464968e+00,  2.938163982698783e+00};
  constexpr std::array d{7.784695709041462e-03, 3.224671290700398e-01, 2.445134137142996e+00,
                         3.754408661907416e+00, 1.0};
  constexpr double tail = 0.02425;
  if (p > 1 - tail) return -normal_quantile(1 - p);
  if (p < tail) {
    const double q = std::sqrt(-2 * plain_log(p)); // IEEE: correctly rounded everywhere
    return polynomial(c, q) / polynomial(d, q);
  }
  const double q = p - 0.5;
  const double square = q * q;
  return polynomial(a, square) * q / polynomial(b, square);
}

} // namespace fanin::source::detail
