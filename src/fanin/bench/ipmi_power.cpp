#include "fanin/bench/ipmi_power.hpp"

#include <fcntl.h>
#include <linux/ipmi.h>
#include <poll.h>
#include <sys/ioctl.h>

#include <array>
#include <utility>

namespace fanin::bench {
namespace {

constexpr std::uint8_t group_extension = 0x2c; // network function
constexpr std::uint8_t get_power_reading = 0x02;
constexpr std::uint8_t dcmi = 0xdc;
constexpr std::size_t power_at = 2;  // u16, little-endian: now
constexpr std::size_t state_at = 18; // bit 6: it measures
constexpr std::uint8_t measures = 0x40;

} // namespace

std::optional<double> dcmi_power_w(std::span<const std::uint8_t> answer) {
  if (answer.size() <= state_at || answer[0] != 0 || answer[1] != dcmi) return {};
  if ((answer[state_at] & measures) == 0) return {};
  return answer[power_at] + 256.0 * answer[power_at + 1];
}

std::unique_ptr<IpmiPower> IpmiPower::open(const std::string& device) {
  Descriptor opened(::open(device.c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK));
  if (!opened) return nullptr;
  std::unique_ptr<IpmiPower> power(new IpmiPower(std::move(opened)));
  return power->ask() ? std::move(power) : nullptr;
}

bool IpmiPower::ask() {
  ipmi_system_interface_addr address{};
  address.addr_type = IPMI_SYSTEM_INTERFACE_ADDR_TYPE;
  address.channel = IPMI_BMC_CHANNEL;
  std::array<unsigned char, 4> body{dcmi, 1, 0, 0}; // mode 1: the system's power
  ipmi_req request{};
  request.addr = reinterpret_cast<unsigned char*>(&address);
  request.addr_len = sizeof address;
  request.msg = {.netfn = group_extension,
                 .cmd = get_power_reading,
                 .data_len = body.size(),
                 .data = body.data()};
  asked_ = ioctl(device_.get(), IPMICTL_SEND_COMMAND, &request) == 0;
  return asked_;
}

std::optional<double> IpmiPower::read_w() {
  std::optional<double> last;
  pollfd watch{device_.get(), POLLIN, 0};
  while (asked_ && poll(&watch, 1, 0) == 1) {
    ipmi_addr address{};
    std::array<unsigned char, IPMI_MAX_MSG_LENGTH> body{};
    ipmi_recv answer{};
    answer.addr = reinterpret_cast<unsigned char*>(&address);
    answer.addr_len = sizeof address;
    answer.msg.data = body.data();
    answer.msg.data_len = body.size();
    if (ioctl(device_.get(), IPMICTL_RECEIVE_MSG_TRUNC, &answer) != 0) break;
    last = dcmi_power_w(std::span(body).first(answer.msg.data_len));
    asked_ = false;
  }
  if (!asked_) (void)ask();
  return last;
}

} // namespace fanin::bench
