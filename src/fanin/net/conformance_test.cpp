// The transports of this library against the conformance suite.
#include "fanin/net/conformance/suite.hpp"

#include <algorithm>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "fanin/net/rdma/rdma.hpp"
#include "fanin/net/rdma/testing/adversarial_provider.hpp"
#include "fanin/net/registry.hpp"
#include "fanin/net/testing/given_urls.hpp"
#include "fanin/net/testing/raw_peers.hpp"
#include "fanin/net/testing/sim_backend.hpp"

namespace fanin::net::conformance {
namespace {

// Real time, and what a test adds to it. What the machine does for others between two turns hardly
// counts: on a busy one peers would be given up before they had their turn. A loop that sleeps has
// no turns, and runs in real time.
class ForwardClock final : public Clock {
public:
  static constexpr Duration turn_most = std::chrono::milliseconds{2};
  [[nodiscard]] Time now() const override { return sleeps_ ? now_ + since_last_turn() : now_; }
  void add(Duration time) { now_ += time; }
  void turn() {
    const Duration passed = since_last_turn();
    last_turn_ += passed;
    now_ += std::min(passed, turn_most);
  }
  void let_sleep() {
    turn();
    sleeps_ = true;
  }

private:
  [[nodiscard]] Duration since_last_turn() const { return clock_.now() - last_turn_; }

  MonotonicClock clock_;
  Time last_turn_ = clock_.now(); // in real time
  Time now_ = last_turn_;
  bool sleeps_ = false;
};

// Transports of one loop in real time, as the registry makes them.
class LoopBackend final : public Backend {
public:
  explicit LoopBackend(std::string_view url, WaitPolicy policy = WaitPolicy::block)
      : address_(Url::parse(url).value()), loop_(clock_, policy) {
    server_ = make();
    loop_.add(*server_);
    if (address_.network() == "inproc") return; // both ends in one
    client_ = make();
    loop_.add(*client_);
  }
  Transport& server() override { return *server_; }
  Transport& client() override { return client_ ? *client_ : *server_; }
  [[nodiscard]] Url address() const override { return address_; }
  // Where somebody was a moment ago; a port is not given away again so soon.
  [[nodiscard]] Url nobody() const override {
    const auto pool = make_pool({.page_size = page_size, .pages = 1});
    const auto transport = make();
    return transport->listening_url(
        transport->listen(address_, {.receive_pool = pool.get()}).value());
  }
  // What is held back for so little time counts as something to do.
  bool turn() override {
    clock_.turn();
    return loop_.turn() || loop_.next_deadline() - clock_.now() < std::chrono::milliseconds(1);
  }
  bool kill_client() override {
    if (!client_) return false;
    loop_.remove(*client_);
    client_.reset();
    return true;
  }
  std::unique_ptr<RawPeer> connect_raw(const Url& listener) override {
    return conformance::connect_raw(listener);
  }
  [[nodiscard]] bool meets_silent_peers() const override { // libfabric accepts them
    return !address_.scheme.ends_with("ofi+tcp");
  }
  // SoftRoCE does not say that a queue pair has taken its last receive.
  [[nodiscard]] bool frees_pages_at_once() const override {
    return !address_.options.contains("share_above");
  }
  bool pass(Duration time) override {
    clock_.add(time);
    return true;
  }
  Loop* sleeping_loop() override {
    if (loop_.policy() != WaitPolicy::block) return nullptr;
    clock_.let_sleep();
    return &loop_;
  }

private:
  [[nodiscard]] std::unique_ptr<Transport> make() const {
    TransportRegistry registry;
    add_built_in_transports(registry);
    return registry.find(address_.scheme)(loop_, [](LogLevel, std::string_view) {}).value();
  }

  Url address_;
  ForwardClock clock_;
  mutable Loop loop_;
  std::unique_ptr<Transport> server_;
  std::unique_ptr<Transport> client_;
};

// The rdma transport above a provider in memory.
class AdversarialBackend final : public Backend {
public:
  explicit AdversarialBackend(std::map<std::string, std::string> options) {
    address_.options = {options.begin(), options.end()};
    for (auto* const side : {&server_, &client_}) {
      *side = std::make_unique<RdmaTransport>(loop_,
                                              std::make_unique<rdma::AdversarialProvider>(fabric_));
      loop_.add(**side);
    }
  }
  Transport& server() override { return *server_; }
  Transport& client() override { return *client_; }
  [[nodiscard]] Url address() const override { return address_; }
  [[nodiscard]] Url nobody() const override { return Url{.scheme = "adversarial", .port = 65535}; }
  bool turn() override {
    clock_.turn();
    return loop_.turn();
  }
  bool pass(Duration time) override {
    clock_.add(time);
    return true;
  }
  bool kill_client() override {
    loop_.remove(*client_);
    client_.reset();
    return true;
  }

private:
  Url address_{.scheme = "adversarial"};
  std::shared_ptr<rdma::AdversarialFabric> fabric_ = std::make_shared<rdma::AdversarialFabric>(1);
  ForwardClock clock_;
  Loop loop_{clock_};
  std::unique_ptr<RdmaTransport> server_;
  std::unique_ptr<RdmaTransport> client_;
};

Parameter over(std::string name, const char* url) {
  return {.name = std::move(name), .make = [url] { return std::make_unique<LoopBackend>(url); }};
}
Parameter over_tcp(std::string name, const char* url) {
  Parameter parameter = over(std::move(name), url);
  parameter.small_without_pages = true;
  return parameter;
}
Parameter over_faults(Parameter parameter) {
  parameter.holds_messages = true;
  return parameter;
}
[[maybe_unused]] Parameter over_polling(std::string name, const char* url) {
  return {.name = std::move(name),
          .make = [url] { return std::make_unique<LoopBackend>(url, WaitPolicy::poll); }};
}
Parameter over_shm(std::string name, const char* url, bool shared_pools) {
  Parameter parameter = over(std::move(name), url);
  parameter.shared_pools = shared_pools;
  parameter.descriptors = 12;
  parameter.small_without_pages = true;
  return parameter;
}
// Each end of a connection takes 4 MiB of /dev/shm.
[[maybe_unused]] Parameter over_ofi_shm(std::string name, const char* url) {
  Parameter parameter = over(std::move(name), url);
  parameter.limits.connections = 16;
  return parameter;
}
// Connections share the receives of an endpoint (docs/rdma.md).
[[maybe_unused]] Parameter over_ofi_rxm(std::string name, const char* url) {
  Parameter parameter = over(std::move(name), url);
  parameter.limits.connections = std::min<std::size_t>(parameter.limits.connections, 512);
  parameter.leaks_at_death = true;
  return parameter;
}
Parameter over_adversarial(std::string name, std::map<std::string, std::string> options) {
  return {.name = std::move(name),
          .make = [options] { return std::make_unique<AdversarialBackend>(options); }};
}
Parameter over_sim(std::string name, bool strict) {
  return {.name = std::move(name), .make = [strict]() -> std::unique_ptr<Backend> {
            return std::make_unique<SimBackend>(
                VirtualNetworkOptions{.strict = strict, .posted_receives = 2});
          }};
}

constexpr const char* nothing_wrong = "fault+inproc://server";
constexpr const char* bad_inproc = "fault+inproc://server?seed=3&delay=50us&backpressure=0.2";
constexpr const char* bad_tcp = "fault+tcp://127.0.0.1?seed=4&delay=50us&backpressure=0.2";
[[maybe_unused]] constexpr const char* bad_ofi =
    "fault+ofi+tcp://127.0.0.1?seed=6&delay=50us&backpressure=0.2";
[[maybe_unused]] constexpr const char* bad_ofi_shm =
    "fault+ofi+shm://127.0.0.1?seed=7&delay=50us&backpressure=0.2";
constexpr const char* bad_shm = "trace+fault+shm://test?seed=5&delay=50us&backpressure=0.2";

#if FANIN_HAVE_OFI
INSTANTIATE_TEST_SUITE_P(Ofi, TransportConformance,
                         testing::Values(over("ofi_tcp", "ofi+tcp://127.0.0.1"),
                                         over("ofi_tcp6", "ofi+tcp://[::1]"),
                                         over_polling("ofi_tcp_polling", "ofi+tcp://127.0.0.1"),
                                         over_faults(over("fault_ofi_tcp", bad_ofi)),
                                         over_ofi_shm("ofi_shm", "ofi+shm://127.0.0.1"),
                                         over_faults(over_ofi_shm("fault_ofi_shm", bad_ofi_shm)),
                                         over_ofi_rxm("ofi_rxm", "ofi+tcp-rxm://127.0.0.1")),
                         parameter_name);
#endif

std::vector<Parameter> given() {
  std::vector<Parameter> result;
  for (const std::string& url : given_urls()) {
    result.push_back(
        {.name = test_name(url), .make = [url] { return std::make_unique<LoopBackend>(url); }});
  }
  return result;
}
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(TransportConformance);
INSTANTIATE_TEST_SUITE_P(Given, TransportConformance, testing::ValuesIn(given()), parameter_name);

INSTANTIATE_TEST_SUITE_P(
    Net, TransportConformance,
    testing::Values(over("inproc", "inproc://server"), over_sim("sim", false),
                    over_adversarial("rdma", {}),
                    over_adversarial("rdma_3_pages", {{"posted", "3"}}),
                    over_adversarial("rdma_shared", {{"share_above", "1"}}),
                    over_sim("strict", true), over_shm("shm", "shm://test", true),
                    over_shm("shm_copied", "shm://test", false), over_tcp("tcp", "tcp://127.0.0.1"),
                    over_tcp("tcp6", "tcp://[::1]"), over("trace_inproc", "trace+inproc://server"),
                    over_tcp("trace_tcp", "trace+tcp://127.0.0.1"),
                    over_faults(over("fault_none", nothing_wrong)),
                    over_faults(over("fault_inproc", bad_inproc)),
                    over_faults(over_tcp("fault_tcp", bad_tcp)),
                    over_faults(over_shm("trace_fault_shm", bad_shm, true))),
    parameter_name);

} // namespace
} // namespace fanin::net::conformance
