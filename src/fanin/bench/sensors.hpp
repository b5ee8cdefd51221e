// Temperature and power of this host, as its kernel says. What is not there, cannot be read or is
// absurd is not available: never a number.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>
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
  void find_temperatures();
  void find_processor_power();
  void find_host_power();
  [[nodiscard]] std::optional<double> temperature() const;
  [[nodiscard]] std::optional<double> processor_power(Time now);
  [[nodiscard]] std::optional<double> host_power();
  void set_origin(Quantity quantity, bool available, std::string text) {
    origins_[static_cast<std::size_t>(quantity)] = {available, std::move(text)};
  }

  doctor::Host host_;
  std::array<Origin, quantities> origins_;
  std::vector<std::string> temperatures_; // files of one value for each processor
  std::vector<Package> packages_;
  std::optional<Time> packages_read_;
  std::string host_power_; // file; empty: none
  std::unique_ptr<IpmiPower> ipmi_; // null: none
};

} // namespace fanin::bench
