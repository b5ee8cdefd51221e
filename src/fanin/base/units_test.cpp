#include "fanin/base/units.hpp"

#include <gtest/gtest.h>

#include "fanin/base/random.hpp"

namespace fanin {
namespace {

using namespace std::chrono_literals;

TEST(Units, sizes_are_read_in_powers_of_1000_and_1024) {
  EXPECT_EQ(parse_size("0B").value(), 0U);
  EXPECT_EQ(parse_size("200B").value(), 200U);
  EXPECT_EQ(parse_size("64KiB").value(), 65536U);
  EXPECT_EQ(parse_size("64 KiB").value(), 65536U);
  EXPECT_EQ(parse_size("1.5MiB").value(), 1572864U);
  EXPECT_EQ(parse_size("2kB").value(), 2000U);
  EXPECT_EQ(parse_size("1TB").value(), 1'000'000'000'000U);
  EXPECT_EQ(parse_size("16777215TiB").value(), 16777215ULL << 40);
}

TEST(Units, a_bare_number_is_an_error_that_names_the_units) {
  const auto size = parse_size("64");
  ASSERT_FALSE(size);
  EXPECT_EQ(size.error().kind, ErrorKind::usage);
  EXPECT_NE(size.error().text.find("KiB"), std::string::npos) << size.error().text;
  EXPECT_NE(parse_duration("5").error().text.find("ms"), std::string::npos);
  EXPECT_NE(parse_rate_hz("5").error().text.find("kHz"), std::string::npos);
  EXPECT_NE(parse_bandwidth("5").error().text.find("Gb/s"), std::string::npos);
}

TEST(Units, what_is_not_a_number_with_a_unit_is_an_error) {
  for (const char* text : {"", " ", "KiB", "64kib", "64K", "-1B", "1e3B", ".5B", "5.B", "1.2.3B",
                           "0x10B", "64KiB ", " 64KiB", "64KiBs", "1,5MB", "nanB", "infB"}) {
    EXPECT_FALSE(parse_size(text)) << text;
  }
}

TEST(Units, overflow_is_an_error_and_so_is_less_than_the_smallest_unit) {
  EXPECT_FALSE(parse_size("16777216TiB"));
  EXPECT_FALSE(parse_size("99999999999999999999999999999999999999999999B"));
  EXPECT_FALSE(parse_size("0.1B"));
  EXPECT_FALSE(parse_duration("9999999999h"));
  EXPECT_EQ(parse_duration("9223372036s").error().text, "\"9223372036s\" is too large for a time");
  EXPECT_TRUE(parse_duration("876600h"));
  EXPECT_FALSE(parse_duration("876601h"));
  EXPECT_TRUE(parse_rate_hz("1GHz"));
  EXPECT_EQ(parse_rate_hz("1.1GHz").error().text, "\"1.1GHz\" is too large for a rate");
  EXPECT_FALSE(parse_rate_hz("0Hz"));
  EXPECT_FALSE(parse_bandwidth("0Gb/s"));
}

TEST(Units, times_rates_and_bandwidths_are_read) {
  EXPECT_EQ(parse_duration("50ms").value(), 50ms);
  EXPECT_EQ(parse_duration("0s").value(), 0ns);
  EXPECT_EQ(parse_duration("0").value(), 0ns); // needs no unit
  EXPECT_FALSE(parse_duration("00"));
  EXPECT_EQ(parse_duration("1.5us").value(), 1500ns);
  EXPECT_EQ(parse_duration("2min").value(), 120s);
  EXPECT_EQ(parse_duration("1h").value(), 3600s);
  EXPECT_DOUBLE_EQ(parse_rate_hz("20kHz").value(), 20e3);
  EXPECT_DOUBLE_EQ(parse_rate_hz("0.5Hz").value(), 0.5);
  EXPECT_DOUBLE_EQ(parse_bandwidth("10Gb/s").value(), 1.25e9);
  EXPECT_DOUBLE_EQ(parse_bandwidth("3MB/s").value(), 3e6);
  EXPECT_DOUBLE_EQ(parse_bandwidth("1GiB/s").value(), 1073741824.0);
}

TEST(Units, values_are_written_with_three_digits) {
  EXPECT_EQ(format_size(0), "0 B");
  EXPECT_EQ(format_size(1023), "1023 B");
  EXPECT_EQ(format_size(65536), "64 KiB");
  EXPECT_EQ(format_size(3ULL << 29), "1.5 GiB");
  EXPECT_EQ(format_bandwidth(3.2e9), "3.2 GB/s");
  EXPECT_EQ(format_bandwidth(999.7e6), "1 GB/s");
  EXPECT_EQ(format_rate(12345), "12.3 kHz");
  EXPECT_EQ(format_rate(123456), "123 kHz");
  EXPECT_EQ(format_duration(250us), "250 us");
  EXPECT_EQ(format_duration(1500ms), "1.5 s");
  EXPECT_EQ(format_duration(90s), "90 s");
  EXPECT_EQ(format_duration(5min), "5 min");
  EXPECT_EQ(format_duration(-5ms), "-5 ms");
}

TEST(Units, an_exact_size_is_read_as_the_same_number) {
  EXPECT_EQ(exact_size(0), "0B");
  EXPECT_EQ(exact_size(1), "1B");
  EXPECT_EQ(exact_size(1536), "1536B");
  EXPECT_EQ(exact_size(1536 << 10), "1536KiB");
  EXPECT_EQ(exact_size(std::uint64_t{3} << 50), "3072TiB");
  Random random(1);
  for (int i = 0; i < 1000; ++i) {
    const std::uint64_t size = (random.next() >> random.below(64)) << random.below(40) >> 8;
    EXPECT_EQ(parse_size(exact_size(size)), size);
  }
}

} // namespace
} // namespace fanin
