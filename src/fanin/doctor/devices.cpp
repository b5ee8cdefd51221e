// RDMA devices, network interfaces, and where they sit.
#include <algorithm>

#include <fmt/format.h>

#include "fanin/base/units.hpp"
#include "fanin/doctor/examine.hpp"
#include "fanin/doctor/ports.hpp"

namespace fanin::doctor::detail {
namespace {

constexpr std::string_view devices = "sys/class/infiniband";
constexpr std::string_view interfaces = "sys/class/net";
constexpr std::uint64_t locked_least = 1ULL << 30; // bytes; pools are registered as a whole
constexpr std::uint64_t locked_needed = 64U << 20; // by the smallest run
constexpr std::int64_t jumbo = 9000; // bytes
constexpr std::int64_t roce_least = 4200; // so that packets of 4096 fit
constexpr std::int64_t fast = 10'000; // Mb/s

// The interface of an RDMA device that speaks over Ethernet.
void examine_roce_mtu(const Host& host, const std::string& device, Findings& findings) {
  const std::string folder = fmt::format("{}/{}/device/net", devices, device);
  for (const std::string& interface : host.names(folder)) {
    const auto mtu = host.number(fmt::format("{}/{}/mtu", folder, interface));
    if (!mtu || *mtu >= roce_least) continue;
    findings.push_back(
        {fmt::format("MTU of {} ({})", interface, device), Level::hint,
         fmt::format("{} B, so RDMA packets are smaller than 4096 B", *mtu),
         fmt::format("ip link set {} mtu {}, on switches and peers too", interface, jumbo)});
  }
}

bool has_active_port(const Host& host, const std::string& device) {
  return std::ranges::any_of(ports_of(host, device),
                             [](const Port& port) { return port.state == "ACTIVE"; });
}

// `others`: some device has an active port.
void examine_device(const Host& host, const std::string& device, bool others, Findings& findings) {
  const bool active = has_active_port(host, device);
  std::string text;
  bool over_ethernet = false;
  for (const Port& port : ports_of(host, device)) {
    over_ethernet = over_ethernet || port.link_layer == "Ethernet";
    text += fmt::format("{}port {} {}, {}, {}", text.empty() ? "" : "; ", port.number, port.state,
                        port.rate, port.link_layer);
    const auto on = interfaces_of(host, port);
    if (!on.empty()) text += fmt::format(", addresses as `ip address show {}`", on.front());
  }
  findings.push_back({fmt::format("RDMA device {}", device),
                      active   ? Level::good
                      : others ? Level::hint
                               : Level::problem,
                      text.empty() ? "no port" : text,
                      active ? ""
                             : "no port is active: check the cable, `ip link` (RoCE), or that a "
                               "subnet manager runs (InfiniBand)"});
  if (over_ethernet) examine_roce_mtu(host, device, findings);
}

} // namespace

void examine_rdma(const Host& host, Findings& findings) {
  const auto found = rdma_devices(host);
  if (found.empty()) {
    findings.push_back(
        {"RDMA devices", Level::good, "none; verbs:// and ofi+verbs:// are not for this host", ""});
    return;
  }
  const bool any_active = std::ranges::any_of(
      found, [&](const std::string& device) { return has_active_port(host, device); });
  for (const std::string& device : found) examine_device(host, device, any_active, findings);
  const auto files = host.names("dev/infiniband");
  const bool verbs = std::ranges::any_of(
      files, [](const std::string& name) { return name.starts_with("uverbs"); });
  if (!verbs || !host.exists("dev/infiniband/rdma_cm")) {
    findings.push_back(
        {"RDMA for programs", Level::problem,
         fmt::format("there is no /dev/infiniband/{}", verbs ? "rdma_cm" : "uverbs*"),
         "modprobe rdma_ucm, and install rdma-core"});
  }
  for (const std::string& name : files) {
    const std::string file = "dev/infiniband/" + name;
    if ((name != "rdma_cm" && !name.starts_with("uverbs")) || host.usable(file)) continue;
    findings.push_back({"RDMA for this user", Level::problem,
                        fmt::format("no right to read and write /{}", file),
                        "chmod 666, or a udev rule as that of Debian's rdma-core"});
  }
  const auto locked = host.limit("Max locked memory");
  if (locked && *locked < locked_least) {
    findings.push_back(
        {"locked memory", *locked < locked_needed ? Level::problem : Level::hint,
         fmt::format("at most {}, and RDMA needs all pools in it", format_size(*locked)),
         "ulimit -l unlimited, memlock in /etc/security/limits.conf, or "
         "LimitMEMLOCK=infinity in the unit"});
  } else {
    findings.push_back(
        {"locked memory", Level::good, locked ? format_size(*locked) : "unlimited", ""});
  }
}

void examine_interfaces(const Host& host, Findings& findings) {
  for (const std::string& interface : host.names(interfaces)) {
    const auto read = [&](const char* file) {
      return fmt::format("{}/{}/{}", interfaces, interface, file);
    };
    if (!host.exists(read("device")) || host.text(read("operstate")) != "up") continue;
    const auto mtu = host.number(read("mtu"));
    const auto speed = host.number(read("speed"));
    if (!mtu) continue;
    const std::string found = fmt::format(
        "MTU {} B{}", *mtu, speed && *speed > 0 ? fmt::format(", {} Mb/s", *speed) : std::string());
    const bool small = speed && *speed >= fast && *mtu < jumbo;
    findings.push_back(hint_if(small, "interface " + interface, found,
                               fmt::format("ip link set {} mtu {}, on switches and peers too: "
                                           "fewer packets for the processors",
                                           interface, jumbo)));
  }
}

// Which cores are near each device; only worth a word where there is a choice.
void examine_numa(const Host& host, Findings& findings) {
  const std::string nodes = host.text("sys/devices/system/node/online").value_or("0");
  if (nodes.find_first_of(",-") == std::string::npos) {
    findings.push_back({"NUMA", Level::good, "one node: everything is near", ""});
    return;
  }
  bool any = false;
  for (const std::string_view folder : {devices, interfaces}) {
    for (const std::string& name : host.names(folder)) {
      const auto node = host.number(fmt::format("{}/{}/device/numa_node", folder, name));
      if (!node || *node < 0) continue;
      const std::string at = fmt::format("sys/devices/system/node/node{}", *node);
      const std::string cores = host.text(at + "/cpulist").value_or("?");
      findings.push_back({fmt::format("NUMA node of {}", name), Level::hint,
                          fmt::format("node {}, cores {}; distances to the nodes: {}", *node, cores,
                                      host.text(at + "/distance").value_or("?")),
                          fmt::format("give the processes that use it cores of {} and numa_node = "
                                      "{} (docs/configuration.md)",
                                      cores, *node)});
      any = true;
    }
  }
  if (!any)
    findings.push_back({"NUMA", Level::good, "nodes " + nodes + ", no device near one", ""});
}

} // namespace fanin::doctor::detail
