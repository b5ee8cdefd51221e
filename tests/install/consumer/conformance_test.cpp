// How a plug-in tests its transport: with the suite that is installed beside the headers.
#include <fanin/net/conformance/suite.hpp>
#include <fanin/net/decorator.hpp>
#include <fanin/net/registry.hpp>

namespace {

namespace net = fanin::net;

// Stands for a transport of one's own.
class OwnTransport final : public net::Decorator {
public:
  explicit OwnTransport(net::Loop& loop) : Decorator("own", inproc(loop)) {}

private:
  static std::unique_ptr<net::Transport> inproc(net::Loop& loop) {
    net::TransportRegistry registry;
    net::add_built_in_transports(registry);
    return registry.find("inproc")(loop, [](fanin::LogLevel, std::string_view) {}).value();
  }
};

class OwnBackend final : public net::conformance::Backend {
public:
  OwnBackend() { loop_.add(transport_); }
  net::Transport& server() override { return transport_; }
  net::Transport& client() override { return transport_; }
  net::Url address() const override { return net::Url::parse("own+inproc://server").value(); }
  net::Url nobody() const override { return net::Url::parse("own+inproc://nobody").value(); }
  bool turn() override { return loop_.turn(); }
  bool kill_client() override { return false; }
  net::Loop* sleeping_loop() override { return &loop_; }

private:
  fanin::MonotonicClock clock_;
  net::Loop loop_{clock_};
  OwnTransport transport_{loop_};
};

} // namespace

namespace fanin::net::conformance {

INSTANTIATE_TEST_SUITE_P(Own, TransportConformance,
                         testing::Values(Parameter{
                             .name = "own", .make = [] { return std::make_unique<OwnBackend>(); }}),
                         parameter_name);

} // namespace fanin::net::conformance
