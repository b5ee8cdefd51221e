/// \file
/// Values with a dimension carry their unit in text: "64KiB", "10Gb/s", "50ms", "20kHz". Sizes: B,
/// kB, MB, GB, TB (powers of 1000), KiB, MiB, GiB, TiB (powers of 1024). Rates: Hz, kHz, MHz, GHz.
/// Bandwidth: b/s, kb/s, Mb/s, Gb/s (bits), B/s, kB/s, MB/s, GB/s, and the binary KiB/s, MiB/s,
/// GiB/s. Times: ns, us, ms, s, min, h. A number without a unit, other than 0, is an error that
/// names the possible units. A negative value is an error too, and so is one that is too large:
/// times over 100 years, rates over 1 GHz.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "fanin/base/clock.hpp"
#include "fanin/base/export.hpp"
#include "fanin/base/result.hpp"

namespace fanin {

[[nodiscard]] FANIN_API Result<std::uint64_t> parse_size(std::string_view text); ///< bytes
[[nodiscard]] FANIN_API Result<Duration> parse_duration(std::string_view text); ///< >= 0
[[nodiscard]] FANIN_API Result<double>
parse_rate_hz(std::string_view text); ///< events per second, > 0
[[nodiscard]] FANIN_API Result<double>
parse_bandwidth(std::string_view text); ///< bytes per second, > 0

/// Text for users: "1.5 GiB", "3.2 GB/s", "12.3 kHz", "250 us". Three significant digits.
[[nodiscard]] FANIN_API std::string format_size(std::uint64_t bytes);
[[nodiscard]] FANIN_API std::string format_bandwidth(double bytes_per_second);
[[nodiscard]] FANIN_API std::string format_rate(double hertz);
[[nodiscard]] FANIN_API std::string format_duration(Duration duration);
/// As a configuration has it, exactly: "1536KiB".
[[nodiscard]] FANIN_API std::string exact_size(std::uint64_t bytes);

} // namespace fanin
