// sim:// over a simulated crossbar, against the conformance suite of all transports.
#include "fanin/net/conformance/suite.hpp"

#include <memory>
#include <string>
#include <utility>

#include "fanin/base/assert.hpp"
#include "fanin/net/testing/sim_backend.hpp"
#include "fanin/simulation/fabric_carrier.hpp"

namespace fanin::simulation {
namespace {

using net::Transport;
using net::Url;
using net::conformance::Backend;
using net::conformance::Parameter;
using net::conformance::parameter_name;
using net::conformance::SimBackend;
using net::conformance::TransportConformance;

std::unique_ptr<FabricCarrier> crossbar() {
  fabric::FabricOptions options;
  options.topology.link_latency = Duration{500};
  options.queueing = fabric::Queueing::input_fifo;
  options.packet_header = 66;
  auto network = fabric::Fabric::make(options);
  FANIN_ASSERT(network.has_value());
  return std::make_unique<FabricCarrier>(std::move(*network), std::vector<std::uint32_t>{0, 1});
}

// The carrier outlives its world.
class FabricBackend final : public Backend {
public:
  explicit FabricBackend(bool strict)
      : carrier_(crossbar()),
        inner_({.latency_min = Duration{1000},
                .latency_max = Duration{3000}, // all alike would keep step with the turns
                .strict = strict,
                .posted_receives = 2,
                .carrier = carrier_.get()}) {}
  Transport& server() override { return inner_.server(); }
  Transport& client() override { return inner_.client(); }
  [[nodiscard]] Url address() const override { return inner_.address(); }
  [[nodiscard]] Url nobody() const override { return inner_.nobody(); }
  bool turn() override { return inner_.turn(); }
  bool pass(Duration time) override { return inner_.pass(time); }
  bool kill_client() override { return inner_.kill_client(); }

private:
  std::unique_ptr<FabricCarrier> carrier_;
  SimBackend inner_;
};

Parameter over_fabric(std::string name, bool strict) {
  return {.name = std::move(name),
          .make = [strict] { return std::make_unique<FabricBackend>(strict); }};
}

INSTANTIATE_TEST_SUITE_P(Fabric, TransportConformance,
                         testing::Values(over_fabric("crossbar", false),
                                         over_fabric("crossbar_strict", true)),
                         parameter_name);

} // namespace
} // namespace fanin::simulation
