// The transports of this library against the conformance suite.
#include "fanin/net/conformance/suite.hpp"

#include "fanin/net/inproc/inproc.hpp"
#include "fanin/net/shm/shm.hpp"
#include "fanin/net/tcp/tcp.hpp"
#include "fanin/net/virtual_world.hpp"

namespace fanin::net::conformance {
namespace {

class InprocBackend final : public Backend {
public:
  InprocBackend() { loop_.add(transport_); }
  Transport& server() override { return transport_; }
  Transport& client() override { return transport_; }
  [[nodiscard]] Url address() const override { return {.scheme = "inproc", .host = "server"}; }
  [[nodiscard]] Url nobody() const override { return {.scheme = "inproc", .host = "nobody"}; }
  bool turn() override { return loop_.turn(); }
  bool kill_client() override { return false; }
  Loop* sleeping_loop() override { return &loop_; }

private:
  MonotonicClock clock_;
  Loop loop_{clock_};
  InprocTransport transport_;
};

class TcpBackend final : public Backend {
public:
  explicit TcpBackend(std::string host) : host_(std::move(host)) {
    loop_.add(server_);
    loop_.add(*client_);
  }
  Transport& server() override { return server_; }
  Transport& client() override { return *client_; }
  [[nodiscard]] Url address() const override { return {.scheme = "tcp", .host = host_}; }
  // A port that was free a moment ago, and that nothing gives away again so soon.
  [[nodiscard]] Url nobody() const override {
    MonotonicClock clock;
    Loop loop(clock);
    TcpTransport transport(loop);
    const auto pool = make_pool(1);
    return transport.listening_url(
        transport.listen(address(), {.receive_pool = pool.get()}).value());
  }
  bool turn() override { return loop_.turn(); }
  bool kill_client() override {
    loop_.remove(*client_);
    client_.reset();
    return true;
  }
  Loop* sleeping_loop() override { return &loop_; }

private:
  std::string host_;
  MonotonicClock clock_;
  Loop loop_{clock_};
  TcpTransport server_{loop_};
  std::unique_ptr<TcpTransport> client_ = std::make_unique<TcpTransport>(loop_);
};

class ShmBackend final : public Backend {
public:
  ShmBackend() {
    loop_.add(server_);
    loop_.add(*client_);
  }
  Transport& server() override { return server_; }
  Transport& client() override { return *client_; }
  [[nodiscard]] Url address() const override { return {.scheme = "shm", .host = "test"}; }
  [[nodiscard]] Url nobody() const override {
    return {.scheme = "shm", .host = "nobody", .port = 1};
  }
  bool turn() override { return loop_.turn(); }
  bool kill_client() override {
    loop_.remove(*client_);
    client_.reset();
    return true;
  }
  Loop* sleeping_loop() override { return &loop_; }

private:
  MonotonicClock clock_;
  Loop loop_{clock_};
  ShmTransport server_{loop_};
  std::unique_ptr<ShmTransport> client_ = std::make_unique<ShmTransport>(loop_);
};

class SimBackend final : public Backend {
public:
  explicit SimBackend(bool strict)
      : world_(1, {.strict = strict, .posted_receives = 2}),
        server_(world_.add_node("server")),
        client_(world_.add_node("client")) {}
  Transport& server() override { return server_.transport(); }
  Transport& client() override { return client_.transport(); }
  [[nodiscard]] Url address() const override { return {.scheme = "sim", .host = "server"}; }
  [[nodiscard]] Url nobody() const override { return {.scheme = "sim", .host = "nobody"}; }
  bool turn() override { return world_.step(); }
  bool kill_client() override {
    client_.kill();
    return true;
  }

private:
  VirtualWorld world_;
  VirtualNode& server_;
  VirtualNode& client_;
};

INSTANTIATE_TEST_SUITE_P(
    Net, TransportConformance,
    testing::Values(Parameter{"inproc", [] { return std::make_unique<InprocBackend>(); }},
                    Parameter{"sim", [] { return std::make_unique<SimBackend>(false); }},
                    Parameter{"strict", [] { return std::make_unique<SimBackend>(true); }},
                    Parameter{"shm", [] { return std::make_unique<ShmBackend>(); }, true},
                    Parameter{"shm_copied", [] { return std::make_unique<ShmBackend>(); }},
                    Parameter{"tcp", [] { return std::make_unique<TcpBackend>("127.0.0.1"); }},
                    Parameter{"tcp6", [] { return std::make_unique<TcpBackend>("::1"); }}),
    parameter_name);

} // namespace
} // namespace fanin::net::conformance
