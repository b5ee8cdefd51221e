// The power that a host takes, as its management controller (BMC) measures it: IPMI's DCMI command
// Get Power Reading.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "fanin/base/descriptor.hpp"

namespace fanin::bench {

// What a controller has answered, completion code first; none: it does not measure.
[[nodiscard]] std::optional<double> dcmi_power_w(std::span<const std::uint8_t> answer);

// Thread: one. Does not block: an answer takes the controller some milliseconds, so that each
// reading asks for the next one.
class IpmiPower {
public:
  // Null: there is no such device, or this user may not use it; errno says why.
  [[nodiscard]] static std::unique_ptr<IpmiPower> open(const std::string& device);
  // The last answer that has come; none: none yet, or it measures nothing.
  [[nodiscard]] std::optional<double> read_w();

private:
  explicit IpmiPower(Descriptor device) : device_(std::move(device)) {}
  [[nodiscard]] bool ask();

  Descriptor device_;
  bool asked_ = false;
};

} // namespace fanin::bench
