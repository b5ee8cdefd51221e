#include "fanin/bench/sensors.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <string_view>
#include <system_error>

#include <fmt/format.h>

#include "fanin/base/counted.hpp"

namespace fanin::bench {
namespace {

// What is outside of these is a sensor that is broken, or none.
constexpr double celsius_max = 130;       // and above 0: a processor that works is warm
constexpr double processor_watt_max = 2000; // of each
constexpr double host_watt_max = 50'000;
// Chips of hwmon that are processors.
constexpr std::array<std::string_view, 4> processor_chips{"coretemp", "k10temp", "zenpower",
                                                          "cpu_thermal"};
// Labels of the value of a whole processor.
constexpr std::array<std::string_view, 3> whole_labels{"Package", "Tdie", "Tctl"};
constexpr std::string_view hwmon = "sys/class/hwmon";
constexpr std::string_view powercap = "sys/class/powercap";

bool is_between(double value, double least, double most) { return value > least && value <= most; }

} // namespace

Sensors::Sensors(const std::filesystem::path& root)
    : host_(root), origins_{find_temperatures(), find_processor_power(), find_host_power(root)} {}

Sensors::Origin Sensors::find_temperatures() {
  std::string names;
  for (const std::string& chip : host_.names(hwmon)) {
    const std::string folder = fmt::format("{}/{}", hwmon, chip);
    const std::string name = host_.text(folder + "/name").value_or("");
    if (std::ranges::find(processor_chips, name) == processor_chips.end()) continue;
    std::string chosen;
    std::string label;
    for (const std::string& file : host_.names(folder)) {
      if (!file.starts_with("temp") || !file.ends_with("_input")) continue;
      const std::string stem = file.substr(0, file.size() - std::string_view("_input").size());
      const std::string own = host_.text(fmt::format("{}/{}_label", folder, stem)).value_or("");
      const bool whole = std::ranges::any_of(
          whole_labels, [&](std::string_view begin) { return own.starts_with(begin); });
      if (!chosen.empty() && !whole) continue;
      chosen = file;
      label = own;
      if (whole) break;
    }
    if (chosen.empty()) continue;
    temperatures_.push_back(fmt::format("{}/{}", folder, chosen));
    names +=
        fmt::format("{}{}{}{}", names.empty() ? "" : ", ", name, label.empty() ? "" : " ", label);
  }
  if (temperatures_.empty()) return {false, fmt::format("no processor in /{}", hwmon)};
  return {true, fmt::format("hwmon: {}", names)};
}

Sensors::Origin Sensors::find_processor_power() {
  std::string unreadable;
  for (const std::string& zone : host_.names(powercap)) {
    const std::string folder = fmt::format("{}/{}", powercap, zone);
    const std::string name = host_.text(folder + "/name").value_or("");
    if (!name.starts_with("package-")) continue; // its parts are within it
    const std::string file = folder + "/energy_uj";
    if (!host_.number(file)) unreadable = file;
    packages_.push_back({.file = file,
                         .range_uj = host_.number(folder + "/max_energy_range_uj").value_or(0),
                         .last_uj = {}});
  }
  if (packages_.empty()) return {false, fmt::format("no package of RAPL in /{}", powercap)};
  if (!unreadable.empty()) {
    packages_.clear(); // the sum of some would look like all
    return {false, fmt::format("/{} cannot be read: most kernels let only root", unreadable)};
  }
  return {true, "RAPL: " + counted(packages_.size(), "package")};
}

Sensors::Origin Sensors::find_host_power(const std::filesystem::path& root) {
  for (const std::string& chip : host_.names(hwmon)) {
    const std::string folder = fmt::format("{}/{}", hwmon, chip);
    if (host_.text(folder + "/name").value_or("") != "power_meter") continue;
    for (const char* file : {"power1_average", "power1_input"}) {
      host_power_ = fmt::format("{}/{}", folder, file);
      if (host_.number(host_power_)) {
        return {true, fmt::format("hwmon: power_meter {}", file)};
      }
    }
  }
  host_power_.clear();
  ipmi_ = IpmiPower::open((root / "dev/ipmi0").string());
  if (ipmi_) return {true, "IPMI: the management controller's power reading"};
  return {false, fmt::format("no power_meter in /{}, and /dev/ipmi0: {}", hwmon,
                             std::generic_category().message(errno))};
}

// The warmest processor's.
std::optional<double> Sensors::temperature() const {
  std::optional<double> warmest;
  for (const std::string& file : temperatures_) {
    const auto millidegrees = host_.number(file);
    if (!millidegrees) continue;
    const double celsius = static_cast<double>(*millidegrees) / 1000;
    if (!is_between(celsius, 0, celsius_max)) continue;
    warmest = std::max(warmest.value_or(celsius), celsius);
  }
  return warmest;
}

std::optional<double> Sensors::processor_power(Time now) {
  if (packages_.empty()) return {};
  const double seconds =
      packages_read_ ? std::chrono::duration<double>(now - *packages_read_).count() : 0;
  packages_read_ = now;
  double sum = 0;
  bool good = seconds > 0;
  for (Package& package : packages_) {
    const auto energy = host_.number(package.file);
    const auto last = std::exchange(package.last_uj, energy);
    if (!energy || !last) {
      good = false;
      continue;
    }
    const double range = *energy < *last ? static_cast<double>(package.range_uj) : 0;
    const double used_uj = static_cast<double>(*energy) - static_cast<double>(*last) + range;
    const double watt = used_uj * 1e-6 / (seconds > 0 ? seconds : 1);
    good = good && is_between(watt, 0, processor_watt_max);
    sum += watt;
  }
  return good ? std::optional(sum) : std::nullopt;
}

std::optional<double> Sensors::host_power() {
  std::optional<double> watt;
  if (ipmi_) {
    watt = ipmi_->read_w();
  } else if (const auto microwatt = host_.number(host_power_); !host_power_.empty() && microwatt) {
    watt = static_cast<double>(*microwatt) * 1e-6;
  }
  return watt && is_between(*watt, 0, host_watt_max) ? watt : std::nullopt;
}

SensorValues Sensors::read(Time now) { return {temperature(), processor_power(now), host_power()}; }

} // namespace fanin::bench
