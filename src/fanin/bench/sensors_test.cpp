// Temperature and power, from a folder that looks like a host.
#include "fanin/bench/sensors.hpp"

#include <unistd.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace fanin::bench {
namespace {

using ::testing::HasSubstr;
namespace fs = std::filesystem;

class SensorsTest : public ::testing::Test {
protected:
  void SetUp() override { fs::remove_all(root); }
  void TearDown() override { fs::remove_all(root); }

  void write(const std::string& path, const std::string& text) const {
    fs::create_directories((root / path).parent_path());
    std::ofstream(root / path) << text << "\n";
  }
  void coretemp(const std::string& chip, const std::string& millidegrees) const {
    const std::string folder = "sys/class/hwmon/" + chip;
    write(folder + "/name", "coretemp");
    write(folder + "/temp1_label", "Package id 0");
    write(folder + "/temp1_input", millidegrees);
    write(folder + "/temp2_label", "Core 0");
    write(folder + "/temp2_input", "99000");
  }
  void package(int number, const std::string& energy_uj) const {
    const std::string folder = "sys/class/powercap/intel-rapl:" + std::to_string(number);
    write(folder + "/name", "package-" + std::to_string(number));
    write(folder + "/energy_uj", energy_uj);
    write(folder + "/max_energy_range_uj", "1000000000");
    write(folder + ":0/name", "core");
    write(folder + ":0/energy_uj", "5");
  }
  [[nodiscard]] static std::optional<double> value(const SensorValues& values, Quantity quantity) {
    return values[static_cast<std::size_t>(quantity)];
  }
  // What one sensor says now; `seconds` is the time.
  [[nodiscard]] static std::optional<double> read(Sensors& sensors, Quantity quantity,
                                                  int seconds = 0) {
    return value(sensors.read(Time{} + std::chrono::seconds{seconds}), quantity);
  }

  fs::path root = fs::temp_directory_path() / ("fanin_sensors_" + std::to_string(getpid()));
};

TEST_F(SensorsTest, what_is_absent_is_not_available_and_says_why) {
  Sensors sensors(root);
  for (int i = 0; i < 2; ++i) {
    for (const auto& one : sensors.read(Time{} + std::chrono::seconds{i})) EXPECT_FALSE(one);
  }
  EXPECT_THAT(sensors.origin(Quantity::temperature).text, HasSubstr("no processor in /sys/class"));
  EXPECT_THAT(sensors.origin(Quantity::processor_power).text, HasSubstr("no package of RAPL"));
  EXPECT_THAT(sensors.origin(Quantity::host_power).text, HasSubstr("No such file"));
  for (const auto quantity :
       {Quantity::temperature, Quantity::processor_power, Quantity::host_power}) {
    EXPECT_FALSE(sensors.origin(quantity).available);
  }
}

TEST_F(SensorsTest, the_temperature_is_that_of_the_warmest_whole_processor) {
  coretemp("hwmon3", "51000");
  coretemp("hwmon4", "62500");
  write("sys/class/hwmon/hwmon0/name", "nvme");
  write("sys/class/hwmon/hwmon0/temp1_input", "80000");
  Sensors sensors(root);
  EXPECT_EQ(read(sensors, Quantity::temperature), 62.5);
  EXPECT_EQ(sensors.origin(Quantity::temperature).text,
            "hwmon: coretemp Package id 0, coretemp Package id 0");
  coretemp("hwmon4", "48000");
  EXPECT_EQ(read(sensors, Quantity::temperature), 51);
}

TEST_F(SensorsTest, a_processor_without_labels_has_its_first_value) {
  write("sys/class/hwmon/hwmon0/name", "k10temp");
  write("sys/class/hwmon/hwmon0/temp1_input", "44125");
  write("sys/class/hwmon/hwmon0/temp2_input", "90000");
  Sensors sensors(root);
  EXPECT_EQ(read(sensors, Quantity::temperature), 44.125);
}

TEST_F(SensorsTest, an_absurd_temperature_is_not_available) {
  coretemp("hwmon0", "50000");
  Sensors sensors(root);
  for (const char* absurd : {"0", "-128000", "131000", "65261850", "9223372036854775807", "",
                             "warm", "99999999999999999999"}) {
    coretemp("hwmon0", absurd);
    EXPECT_FALSE(read(sensors, Quantity::temperature)) << absurd;
  }
  coretemp("hwmon0", "50000");
  EXPECT_EQ(read(sensors, Quantity::temperature), 50);
}

TEST_F(SensorsTest, processor_power_is_the_energy_since_the_last_reading) {
  package(0, "1000000");
  package(1, "2000000");
  Sensors sensors(root);
  EXPECT_FALSE(read(sensors, Quantity::processor_power, 1));
  package(0, "101000000");
  package(1, "152000000");
  EXPECT_EQ(read(sensors, Quantity::processor_power, 3), 125);
  EXPECT_EQ(sensors.origin(Quantity::processor_power).text, "RAPL: 2 packages");
}

TEST_F(SensorsTest, an_energy_counter_may_begin_again) {
  package(0, "950000000");
  Sensors sensors(root);
  (void)sensors.read(Time{});
  package(0, "50000000");
  EXPECT_EQ(read(sensors, Quantity::processor_power, 1), 100);
}

TEST_F(SensorsTest, absurd_energy_is_not_available_and_what_follows_is) {
  package(0, "100");
  Sensors sensors(root);
  (void)sensors.read(Time{});
  int at = 1;
  // It stands still; leaps; is no number; leaps back and over its range.
  for (const char* absurd : {"100", "9000000000000", "-9223372036854775808", "x", "7"}) {
    package(0, absurd);
    EXPECT_FALSE(read(sensors, Quantity::processor_power, at++)) << absurd;
  }
  package(0, "30000007");
  EXPECT_EQ(read(sensors, Quantity::processor_power, at), 30);
  EXPECT_FALSE(read(sensors, Quantity::processor_power, at)) << "no time has passed";
}

TEST_F(SensorsTest, the_power_of_some_processors_is_not_that_of_all) {
  package(0, "100");
  package(1, "x");
  Sensors sensors(root);
  (void)sensors.read(Time{});
  package(0, "50000100");
  EXPECT_FALSE(read(sensors, Quantity::processor_power, 1));
  EXPECT_THAT(sensors.origin(Quantity::processor_power).text,
              HasSubstr("/sys/class/powercap/intel-rapl:1/energy_uj cannot be read"));
}

TEST_F(SensorsTest, the_power_of_the_host_is_that_of_its_power_meter) {
  write("sys/class/hwmon/hwmon0/name", "power_meter");
  write("sys/class/hwmon/hwmon0/power1_average", "213000000");
  Sensors sensors(root);
  EXPECT_EQ(read(sensors, Quantity::host_power), 213);
  EXPECT_EQ(sensors.origin(Quantity::host_power).text, "hwmon: power_meter power1_average");
  for (const char* absurd : {"0", "-5", "4294967295000000", ""}) {
    write("sys/class/hwmon/hwmon0/power1_average", absurd);
    EXPECT_FALSE(read(sensors, Quantity::host_power)) << absurd;
  }
}

TEST_F(SensorsTest, a_device_that_speaks_no_ipmi_is_not_available) {
  write("dev/ipmi0", "");
  Sensors sensors(root);
  EXPECT_FALSE(read(sensors, Quantity::host_power));
  EXPECT_FALSE(sensors.origin(Quantity::host_power).available);
}

// Bytes as a controller sends them: the DCMI specification 1.5, table 6-16.
std::vector<std::uint8_t> power_reading() {
  return {0x00, 0xdc, 0xd5, 0x00, 0x60, 0x00, 0x2c, 0x01, 0xc8, 0x00,
          0x11, 0x22, 0x33, 0x44, 0xe8, 0x03, 0x00, 0x00, 0x40};
}

TEST(DcmiPower, is_what_the_controller_measures_now) {
  EXPECT_EQ(dcmi_power_w(power_reading()), 213);
}

TEST(DcmiPower, an_answer_that_is_none_has_no_value) {
  for (const auto& [at, value] :
       std::vector<std::pair<std::size_t, std::uint8_t>>{{0, 0xc1}, {1, 0x00}, {18, 0x00}}) {
    auto answer = power_reading();
    answer[at] = value;
    EXPECT_FALSE(dcmi_power_w(answer)) << at;
  }
  const auto whole = power_reading();
  for (std::size_t size = 0; size < whole.size(); ++size) {
    EXPECT_FALSE(dcmi_power_w(std::span(whole).first(size))) << size;
  }
}

} // namespace
} // namespace fanin::bench
