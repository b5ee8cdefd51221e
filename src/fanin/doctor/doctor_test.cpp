#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include <gtest/gtest.h>

#include "fanin/doctor/examine.hpp"
#include "fanin/doctor/ports.hpp"

namespace fanin::doctor {
namespace {

namespace fs = std::filesystem;

// A host made of files.
class Doctor : public testing::Test {
protected:
  void SetUp() override {
    put("proc/self/limits",
        "Limit                     Soft Limit           Hard Limit      Units\n"
        "Max open files            1048576              1048576         files\n"
        "Max locked memory         unlimited            unlimited       bytes\n");
    put("proc/meminfo", "MemTotal:       8388608 kB\nMemFree: 1 kB\n");
    put("proc/self/cgroup", "0::/daq\n");
    put("sys/fs/cgroup/daq/memory.max", "max\n");
    put("sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n");
    put("proc/sys/net/ipv4/tcp_congestion_control", "bbr\n");
    put("proc/sys/net/ipv4/tcp_available_congestion_control", "reno bbr cubic\n");
    put("proc/sys/net/ipv4/tcp_rmem", "4096\t131072\t6291456\n");
    put("proc/sys/net/ipv4/tcp_wmem", "4096\t16384\t4194304\n");
    put("sys/devices/system/node/online", "0\n");
    put("sys/devices/system/cpu/online", "0-15\n");
  }
  void TearDown() override { fs::remove_all(root); }

  void put(const std::string& path, const std::string& text) const {
    fs::create_directories((root / path).parent_path());
    std::ofstream(root / path) << text;
  }
  void put_device(const std::string& name, const std::string& state, const std::string& layer) {
    const std::string port = "sys/class/infiniband/" + name + "/ports/1/";
    put(port + "state", state + "\n");
    put(port + "rate", "100 Gb/sec (4X EDR)\n");
    put(port + "link_layer", layer + "\n");
    put("dev/infiniband/rdma_cm", "");
    put("dev/infiniband/uverbs0", "");
  }
  [[nodiscard]] Findings findings() const {
    return examine(Host(root), std::vector<std::string>{"tcp"});
  }
  // The one about something; fails if there is none.
  [[nodiscard]] Finding about(const std::string& what) const {
    const Findings all = findings();
    const auto found = std::ranges::find(all, what, &Finding::what);
    if (found != all.end()) return *found;
    ADD_FAILURE() << "nothing about " << what;
    return {};
  }

  fs::path root = fs::temp_directory_path() / ("fanin_doctor_" + std::to_string(getpid()));
};

// Not root, for as long as it lives: root may use every file.
class AsAnyUser {
public:
  AsAnyUser() {
    constexpr uid_t nobody = 65534;
    if (geteuid() == 0) changed_ = setresuid(nobody, nobody, 0) == 0;
  }
  ~AsAnyUser() {
    if (changed_ && setresuid(0, 0, 0) != 0) std::abort();
  }
  AsAnyUser(const AsAnyUser&) = delete;
  AsAnyUser& operator=(const AsAnyUser&) = delete;
  explicit operator bool() const { return geteuid() != 0; }

private:
  bool changed_ = false;
};

TEST_F(Doctor, finds_a_healthy_host_good) {
  for (const Finding& finding : findings()) {
    EXPECT_EQ(finding.level, Level::good) << finding.what << ": " << finding.found;
    EXPECT_TRUE(finding.remedy.empty()) << finding.what;
  }
}

TEST_F(Doctor, says_what_to_do_with_everything_else) {
  fs::remove_all(root);
  put_device("mlx5_0", "1: DOWN", "Ethernet");
  for (const Finding& finding :
       examine(Host(root), fail(ErrorKind::unsupported, "no libfabric here"))) {
    EXPECT_EQ(finding.level == Level::good, finding.remedy.empty()) << finding.what;
    EXPECT_FALSE(finding.found.empty()) << finding.what;
  }
}

TEST_F(Doctor, shows_a_device_with_its_ports) {
  put_device("mlx5_0", "4: ACTIVE", "InfiniBand");
  const Finding device = about("RDMA device mlx5_0");
  EXPECT_EQ(device.level, Level::good);
  EXPECT_EQ(device.found, "port 1 ACTIVE, 100 Gb/sec (4X EDR), InfiniBand");
  EXPECT_EQ(about("locked memory").found, "unlimited");
}

TEST_F(Doctor, a_device_without_an_active_port_is_a_problem) {
  put_device("mlx5_0", "1: DOWN", "InfiniBand");
  EXPECT_EQ(about("RDMA device mlx5_0").level, Level::problem);
  put("sys/class/infiniband/mlx5_0/ports/2/state", "4: ACTIVE\n");
  EXPECT_EQ(about("RDMA device mlx5_0").level, Level::good); // the other one is enough
}

TEST_F(Doctor, says_which_file_of_rdma_this_user_may_not_use) {
  put_device("mlx5_0", "4: ACTIVE", "Ethernet");
  fs::permissions(root / "dev/infiniband/rdma_cm", fs::perms::all);
  fs::permissions(root / "dev/infiniband/uverbs0", fs::perms::none);
  const AsAnyUser user;
  if (!user) GTEST_SKIP() << "root may use all, and there is no other user to become here";
  EXPECT_EQ(about("RDMA for this user").level, Level::problem);
  EXPECT_NE(about("RDMA for this user").found.find("/dev/infiniband/uverbs0"), std::string::npos);
}

TEST_F(Doctor, a_file_that_cannot_be_read_is_as_if_not_there) {
  EXPECT_TRUE(Host(root).exists("proc/self"));
  EXPECT_FALSE(Host(root).text("proc/self")); // a folder
}

TEST_F(Doctor, knows_the_port_of_an_interface_of_roce) {
  put_device("mlx5_0", "4: ACTIVE", "Ethernet");
  put_device("mlx5_1", "4: ACTIVE", "Ethernet");
  put("sys/class/infiniband/mlx5_1/ports/1/rate", "2.5 Gb/sec (1X SDR)\n");
  put("sys/class/infiniband/mlx5_0/ports/1/gid_attrs/ndevs/0", "ens1\n");
  put("sys/class/infiniband/mlx5_1/ports/1/gid_attrs/ndevs/0", "ens2\n");
  put("sys/class/infiniband/mlx5_1/ports/1/gid_attrs/ndevs/1", "ens2.7\n");
  const auto port = port_of(Host(root), "ens2.7");
  ASSERT_TRUE(port);
  EXPECT_EQ(port->device, "mlx5_1");
  EXPECT_EQ(port->number, "1");
  EXPECT_EQ(port->bits_per_s(), 2'500'000'000U);
  EXPECT_EQ(port_of(Host(root), "ens1")->bits_per_s(), 100'000'000'000U);
  put("sys/class/net/ens2/mtu", "9000\n");
  EXPECT_NE(about("RDMA device mlx5_1").found.find("`ip address show ens2`"), std::string::npos);
  EXPECT_FALSE(port_of(Host(root), "ens"));
  EXPECT_FALSE(port_of(Host(root), "lo"));
}

TEST_F(Doctor, knows_the_port_of_an_interface_of_infini_band) {
  put_device("mlx4_0", "4: ACTIVE", "InfiniBand");
  put("sys/class/infiniband/mlx4_0/ports/2/rate", "56 Gb/sec (4X FDR)\n");
  for (const char* interface : {"ib0", "ib1"})
    put(std::string("sys/class/infiniband/mlx4_0/device/net/") + interface + "/mtu", "2044\n");
  put("sys/class/net/ib0/dev_port", "0\n");
  put("sys/class/net/ib1/dev_port", "1\n");
  EXPECT_EQ(port_of(Host(root), "ib0")->number, "1");
  EXPECT_EQ(port_of(Host(root), "ib1")->number, "2");
  EXPECT_EQ(port_of(Host(root), "ib1")->bits_per_s(), 56'000'000'000U);
}

TEST_F(Doctor, a_rate_that_it_cannot_read_is_not_known) {
  put_device("mlx5_0", "4: ACTIVE", "Ethernet");
  for (const char* rate : {"", "?", "fast", "100", "100 Mb/sec", "Gb/sec"}) {
    put("sys/class/infiniband/mlx5_0/ports/1/rate", rate);
    EXPECT_EQ(ports_of(Host(root), "mlx5_0").front().bits_per_s(), 0U) << rate;
  }
}

TEST_F(Doctor, rdma_needs_locked_memory_and_its_device_files) {
  put("proc/self/limits", "Max locked memory         8388608              8388608         bytes\n");
  EXPECT_TRUE(
      std::ranges::none_of(findings(), [](const Finding& f) { return f.what == "locked memory"; }));
  put_device("rxe0", "4: ACTIVE", "Ethernet");
  EXPECT_EQ(about("locked memory").level, Level::problem);
  EXPECT_NE(about("locked memory").remedy.find("ulimit -l"), std::string::npos);
  fs::remove(root / "dev/infiniband/rdma_cm");
  EXPECT_EQ(about("RDMA for programs").level, Level::problem);
}

TEST_F(Doctor, small_packets_are_a_hint) {
  put_device("mlx5_1", "4: ACTIVE", "Ethernet");
  put("sys/class/infiniband/mlx5_1/device/net/ens1/mtu", "1500\n");
  EXPECT_EQ(about("MTU of ens1 (mlx5_1)").level, Level::hint);
  put("sys/class/net/eth0/operstate", "up\n");
  put("sys/class/net/eth0/mtu", "1500\n");
  put("sys/class/net/eth0/speed", "1000\n");
  put("sys/class/net/eth0/device/numa_node", "-1\n");
  EXPECT_EQ(about("interface eth0").level, Level::good);
  put("sys/class/net/eth0/speed", "25000\n");
  EXPECT_EQ(about("interface eth0").level, Level::hint);
}

TEST_F(Doctor, tells_the_cores_near_a_device) {
  put("sys/devices/system/node/online", "0-1\n");
  put("sys/devices/system/node/node1/cpulist", "8-15\n");
  put("sys/devices/system/node/node1/distance", "21 10\n");
  put("sys/class/infiniband/mlx5_0/device/numa_node", "1\n");
  const Finding node = about("NUMA node of mlx5_0");
  EXPECT_EQ(node.found, "node 1, cores 8-15; distances to the nodes: 21 10");
  EXPECT_NE(node.remedy.find("numa_node = 1"), std::string::npos);
}

TEST_F(Doctor, low_limits_are_hints) {
  put("proc/self/limits", "Max open files            1024                 4096            files\n");
  put("sys/fs/cgroup/daq/memory.max", "1073741824\n");
  put("sys/fs/cgroup/daq/cpu.max", "50000 100000\n");
  put("sys/kernel/mm/transparent_hugepage/enabled", "always madvise [never]\n");
  put("proc/sys/net/ipv4/tcp_available_congestion_control", "reno bbr\n");
  put("proc/sys/net/ipv4/tcp_wmem", "4096\t16384\t65536\n");
  put("sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "powersave\n");
  for (const char* const what : {"open files", "memory", "processor time", "huge pages",
                                 "TCP congestion control", "socket buffers", "processors"}) {
    EXPECT_EQ(about(what).level, Level::hint) << what;
  }
  EXPECT_EQ(about("memory").found, "this control group may use 1 GiB of 8 GiB");
}

} // namespace
} // namespace fanin::doctor
