// Temperature and power of this host, as its kernel says. What is not there, cannot be read or is
// absurd is not available: never a number.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "fanin/base/clock.hpp"
#include "fanin/bench/ipmi_power.hpp"
#include "fanin/doctor/host.hpp"

namespace fanin::bench {

// What can be read, in the order of the arrays below.
enum class Quantity : std::uint8_t { temperature, processor_power, host_power };
inline constexpr std::size_t quantities = 3;
inline constexpr std::array<const char*, quantities> quantity_keys{
    "temperature_c", "processor_power_w", "host_power_w"};

// By Quantity.
using SensorValues = std::array<std::optional<double>, quantities>;

// Thread: one. Files are looked for once, and read at each read(): a few system calls.
class Sensors {
public:
  // `root`: "/", or a folder that looks like it.
  explicit Sensors(const std::filesystem::path& root);

  // Power of the processors is the mean since the last call: the first one has none.
  [[nodiscard]] SensorValues read(Time now);

  // Where the values come from, or why there are none.
  struct Origin {
    bool available = false;
    std::string text;
  };
  [[nodiscard]] const Origin& origin(Quantity quantity) const {
    return origins_[static_cast<std::size_t>(quantity)];
  }

private:
  struct Package { // a processor's energy counter
    std::string file;
    std::int64_t range_uj = 0; // at which it begins again; 0: not known
    std::optional<std::int64_t> last_uj;
  };
  Origin find_temperatures();
  Origin find_processor_power();
  Origin find_host_power(const std::filesystem::path& root);
  [[nodiscard]] std::optional<double> temperature() const;
  [[nodiscard]] std::optional<double> processor_power(Time now);
  [[nodiscard]] std::optional<double> host_power();

  doctor::Host host_;
  std::vector<std::string> temperatures_; // files of one value for each processor
  std::vector<Package> packages_;
  std::optional<Time> packages_read_;
  std::string host_power_; // file; empty: none
  std::unique_ptr<IpmiPower> ipmi_; // null: none
  std::array<Origin, quantities> origins_; // found with all above
};

} // namespace fanin::bench
