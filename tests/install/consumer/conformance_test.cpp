// How a plug-in tests its transport: with the suite that is installed beside the headers.
#include <fanin/net/conformance/suite.hpp>
#include <fanin/net/in_memory/network.hpp>

namespace {

namespace net = fanin::net;

// Stands for a transport of one's own.
struct OwnNetwork {
  net::in_memory::Network network{net::in_memory::NetworkOptions{.scheme = "own"}};
};
class OwnTransport final : private OwnNetwork, public net::in_memory::MemoryTransport {
public:
  OwnTransport() : MemoryTransport(network, "", 0) {}
};

class OwnBackend final : public net::conformance::Backend {
public:
  OwnBackend() { loop_.add(transport_); }
  net::Transport& server() override { return transport_; }
  net::Transport& client() override { return transport_; }
  net::Url address() const override { return net::Url::parse("own://server").value(); }
  net::Url nobody() const override { return net::Url::parse("own://nobody").value(); }
  bool turn() override { return loop_.turn(); }
  bool kill_client() override { return false; }
  net::Loop* sleeping_loop() override { return &loop_; }

private:
  fanin::MonotonicClock clock_;
  net::Loop loop_{clock_};
  OwnTransport transport_;
};

} // namespace

namespace fanin::net::conformance {

INSTANTIATE_TEST_SUITE_P(Own, TransportConformance,
                         testing::Values(Parameter{
                             .name = "own", .make = [] { return std::make_unique<OwnBackend>(); }}),
                         parameter_name);

} // namespace fanin::net::conformance
