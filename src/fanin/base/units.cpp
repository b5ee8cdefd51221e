#include "fanin/base/units.hpp"
#include "fanin/base/try.hpp"

#include <array>
#include <charconv>
#include <cmath>
#include <limits>
#include <span>

#include <fmt/format.h>

namespace fanin {
namespace {

struct Unit {
  std::string_view name;
  std::uint64_t factor;
};

constexpr std::uint64_t kilo = 1'000;
constexpr std::uint64_t mega = 1'000'000;
constexpr std::uint64_t giga = 1'000'000'000;
constexpr std::uint64_t tera = 1'000'000'000'000;
constexpr std::uint64_t kibi = 1ULL << 10;
constexpr std::uint64_t mebi = 1ULL << 20;
constexpr std::uint64_t gibi = 1ULL << 30;
constexpr std::uint64_t tebi = 1ULL << 40;

constexpr std::array<Unit, 9> sizes{{{"B", 1},
                                     {"kB", kilo},
                                     {"MB", mega},
                                     {"GB", giga},
                                     {"TB", tera},
                                     {"KiB", kibi},
                                     {"MiB", mebi},
                                     {"GiB", gibi},
                                     {"TiB", tebi}}};
constexpr std::array<Unit, 6> durations{
    {{"ns", 1}, {"us", kilo}, {"ms", mega}, {"s", giga}, {"min", 60 * giga}, {"h", 3600 * giga}}};
constexpr std::array<Unit, 4> rates{{{"Hz", 1}, {"kHz", kilo}, {"MHz", mega}, {"GHz", giga}}};
// In bits per second, so that both families are whole numbers.
constexpr std::array<Unit, 11> bandwidths{{{"b/s", 1},
                                           {"kb/s", kilo},
                                           {"Mb/s", mega},
                                           {"Gb/s", giga},
                                           {"B/s", 8},
                                           {"kB/s", 8 * kilo},
                                           {"MB/s", 8 * mega},
                                           {"GB/s", 8 * giga},
                                           {"KiB/s", 8 * kibi},
                                           {"MiB/s", 8 * mebi},
                                           {"GiB/s", 8 * gibi}}};

struct What {
  std::string_view name;    // "a size"
  std::string_view example; // "64KiB"
  std::span<const Unit> units;
};

std::string unit_names(std::span<const Unit> units) {
  std::string names;
  for (const Unit& unit : units) {
    if (!names.empty()) names += ", ";
    names += unit.name;
  }
  return names;
}

bool is_digit(char c) { return c >= '0' && c <= '9'; }

// The number as text and the unit's factor.
struct Split {
  std::string_view number;
  std::uint64_t factor = 1;
};

Result<Split> split(std::string_view text, const What& what) {
  std::size_t end = 0;
  while (end < text.size() && (is_digit(text[end]) || text[end] == '.')) ++end;
  const std::string_view number = text.substr(0, end);
  if (text.starts_with('-')) {
    return fail(ErrorKind::usage,
                fmt::format("\"{}\" is negative; {} is at least 0", text, what.name));
  }
  const auto dot = number.find('.');
  const bool one_dot = dot == std::string_view::npos || number.find('.', dot + 1) == number.npos;
  if (number.empty() || !one_dot || !is_digit(number.front()) || !is_digit(number.back())) {
    return fail(ErrorKind::usage,
                fmt::format("\"{}\" is not {}; write a number and a unit, as in \"{}\"", text,
                            what.name, what.example));
  }
  std::string_view unit = text.substr(end);
  while (unit.starts_with(' ')) unit.remove_prefix(1);
  for (const Unit& known : what.units) {
    if (known.name == unit) return Split{number, known.factor};
  }
  if (unit.empty() && number == "0") return Split{number, 1}; // is the same in all units
  return fail(ErrorKind::usage, fmt::format("\"{}\" {}; the units are {}, as in \"{}\"", text,
                                            unit.empty() ? "has no unit" : "has an unknown unit",
                                            unit_names(what.units), what.example));
}

// Whole numbers exactly, fractions rounded to the nearest.
Result<std::uint64_t> parse_whole(std::string_view text, const What& what, std::uint64_t limit) {
  const auto parts = FANIN_TRY(split(text, what));
  __extension__ using Wide = unsigned __int128;
  constexpr Wide mantissa_max = 1'000'000'000'000'000'000U;
  const auto too_large = [&] {
    return fail(ErrorKind::usage, fmt::format("\"{}\" is too large for {}", text, what.name));
  };
  Wide mantissa = 0;
  Wide divisor = 1;
  bool fraction = false;
  for (const char c : parts.number) {
    if (c == '.') {
      fraction = true;
      continue;
    }
    if (fraction && divisor >= 1'000'000'000U) continue; // finer than any unit here resolves
    mantissa = mantissa * 10 + static_cast<Wide>(c - '0');
    if (fraction) divisor *= 10;
    if (mantissa / divisor > mantissa_max) return too_large();
  }
  const Wide value = (mantissa * parts.factor + divisor / 2) / divisor;
  if (value > limit) return too_large();
  if (value == 0 && mantissa != 0) {
    return fail(ErrorKind::usage,
                fmt::format("\"{}\" is smaller than one {}", text, what.units.front().name));
  }
  return static_cast<std::uint64_t>(value);
}

Result<double> parse_positive(std::string_view text, const What& what) {
  const auto parts = FANIN_TRY(split(text, what));
  double number = 0;
  const char* const end = parts.number.data() + parts.number.size();
  const auto [stop, error] = std::from_chars(parts.number.data(), end, number);
  const double value = number * static_cast<double>(parts.factor);
  if (error != std::errc{} || stop != end || !std::isfinite(value)) {
    return fail(ErrorKind::usage, fmt::format("\"{}\" is out of range for {}", text, what.name));
  }
  if (value <= 0) {
    return fail(ErrorKind::usage, fmt::format("\"{}\" is zero; {} is above 0", text, what.name));
  }
  return value;
}

struct Step {
  std::string_view name;
  double factor; // of the smallest unit
};

// Three significant digits in the largest unit that gives at least 1.
std::string format_in(double value, std::span<const Step> steps, double roll_over) {
  std::size_t i = 0;
  while (i + 1 < steps.size() && value / steps[i].factor >= roll_over) ++i;
  const double scaled = value / steps[i].factor;
  return scaled >= 99.95 ? fmt::format("{:.0f} {}", scaled, steps[i].name)
                         : fmt::format("{:.3g} {}", scaled, steps[i].name);
}

} // namespace

Result<std::uint64_t> parse_size(std::string_view text) {
  return parse_whole(text, {"a size", "64KiB", sizes}, std::numeric_limits<std::uint64_t>::max());
}

Result<Duration> parse_duration(std::string_view text) {
  // So that sums with the time of day never overflow.
  constexpr std::uint64_t limit = 100ULL * 8766 * 3600 * giga; // 100 years
  const auto value = FANIN_TRY(parse_whole(text, {"a time", "50ms", durations}, limit));
  return Duration{static_cast<Duration::rep>(value)};
}

Result<double> parse_rate_hz(std::string_view text) {
  const auto rate = parse_positive(text, {"a rate", "20kHz", rates});
  if (rate && *rate > static_cast<double>(giga)) {
    return fail(ErrorKind::usage, fmt::format("\"{}\" is too large for a rate", text));
  }
  return rate;
}

Result<double> parse_bandwidth(std::string_view text) {
  const auto bits = FANIN_TRY(parse_positive(text, {"a bandwidth", "10Gb/s", bandwidths}));
  return bits / 8;
}

std::string format_size(std::uint64_t bytes) {
  static constexpr std::array<Step, 5> steps{
      {{"B", 1}, {"KiB", 0x1p10}, {"MiB", 0x1p20}, {"GiB", 0x1p30}, {"TiB", 0x1p40}}};
  return format_in(static_cast<double>(bytes), steps, 1023.5);
}

std::string exact_size(std::uint64_t bytes) {
  static constexpr std::array<std::string_view, 5> units{"B", "KiB", "MiB", "GiB", "TiB"};
  std::size_t i = 0;
  for (; i + 1 < units.size() && bytes != 0 && bytes % kibi == 0; ++i) bytes /= kibi;
  return fmt::format("{}{}", bytes, units[i]);
}

std::string format_bandwidth(double bytes_per_second) {
  static constexpr std::array<Step, 5> steps{
      {{"B/s", 1}, {"kB/s", 1e3}, {"MB/s", 1e6}, {"GB/s", 1e9}, {"TB/s", 1e12}}};
  return format_in(bytes_per_second, steps, 999.5);
}

std::string format_rate(double hertz) {
  static constexpr std::array<Step, 4> steps{{{"Hz", 1}, {"kHz", 1e3}, {"MHz", 1e6}, {"GHz", 1e9}}};
  return format_in(hertz, steps, 999.5);
}

std::string format_duration(Duration duration) {
  static constexpr std::array<Step, 4> steps{{{"ns", 1}, {"us", 1e3}, {"ms", 1e6}, {"s", 1e9}}};
  const double value = static_cast<double>(duration.count());
  if (value < 0)
    return "-" + format_duration(duration == Duration::min() ? Duration::max() : -duration);
  constexpr double second = 1e9;
  if (value >= 7200 * second) return fmt::format("{:.3g} h", value / (3600 * second));
  if (value >= 120 * second) return fmt::format("{:.3g} min", value / (60 * second));
  return format_in(value, steps, 999.5);
}

} // namespace fanin
