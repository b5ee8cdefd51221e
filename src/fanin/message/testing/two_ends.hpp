// Two contexts that can reach each other, driven from one thread, for the tests of the sockets:
// over each transport there is.
#pragma once

#include <gtest/gtest.h>

#include <deque>
#include <functional>
#include <memory>
#include <ostream>
#include <span>
#include <string>
#include <vector>

#include "fanin/message/sockets.hpp"
#include "fanin/net/inproc/inproc.hpp"
#include "fanin/net/testing/given_urls.hpp"
#include "fanin/net/virtual_world.hpp"

namespace fanin::message::testing {

// What there is to run the sockets on. Contexts are processes as far as they can be: each has pools
// of its own; a loop of its own unless the network lies within one.
class Network {
public:
  Network() = default;
  Network(const Network&) = delete;
  Network& operator=(const Network&) = delete;
  virtual ~Network() = default;
  [[nodiscard]] virtual std::unique_ptr<Context> make(const ContextOptions& options) = 0;
  [[nodiscard]] virtual net::Url address() const = 0; // where the first context may listen
  virtual void turn(std::span<Context* const> contexts) = 0;
  [[nodiscard]] virtual Time now() const = 0;
};

struct NetworkKind {
  std::string name; // in the names of tests
  std::function<std::unique_ptr<Network>()> make;
  friend void PrintTo(const NetworkKind& kind, std::ostream* out) { *out << kind.name; }
};

// Real networks: each context with a loop and transports of its own.
class ProcessNetwork final : public Network {
public:
  explicit ProcessNetwork(std::string url) : url_(std::move(url)) {}
  std::unique_ptr<Context> make(const ContextOptions& options) override {
    return Context::make(options).value();
  }
  net::Url address() const override { return net::Url::parse(url_).value(); }
  void turn(std::span<Context* const> contexts) override {
    for (Context* const context : contexts) context->turn();
  }
  Time now() const override { return MonotonicClock{}.now(); }

private:
  std::string url_;
};

struct Pools {
  explicit Pools(const ContextOptions& options)
      : send(memory::PagePool::make(options.send_pool).value()),
        receive(memory::PagePool::make(options.receive_pool).value()) {}
  std::unique_ptr<memory::PagePool> send;
  std::unique_ptr<memory::PagePool> receive;
};

// inproc://: one loop and one transport for all.
class InprocNetwork final : public Network {
public:
  InprocNetwork() {
    loop_.add(transport_);
    transports_.add("inproc", transport_);
  }
  std::unique_ptr<Context> make(const ContextOptions& options) override {
    const Pools& pools = pools_.emplace_back(options);
    return std::make_unique<Context>(
        ContextParts{loop_, transports_, *pools.send, *pools.receive, options.seed, options.log});
  }
  net::Url address() const override { return net::Url::parse("inproc://here").value(); }
  void turn(std::span<Context* const>) override { loop_.turn(); }
  Time now() const override { return loop_.now(); }

private:
  std::deque<Pools> pools_;
  MonotonicClock clock_;
  net::Loop loop_{clock_};
  net::InprocTransport transport_;
  net::TransportSet transports_;
};

// Virtual time, one node a context. Strict: as unforgiving as RDMA.
class VirtualNetwork final : public Network {
public:
  explicit VirtualNetwork(bool strict) : world_(1, {.strict = strict}) {}
  std::unique_ptr<Context> make(const ContextOptions& options) override {
    const Pools& pools = pools_.emplace_back(options);
    net::VirtualNode& node = world_.add_node("node" + std::to_string(sets_.size()));
    auto& set = sets_.emplace_back();
    set.add("sim", node.transport());
    return std::make_unique<Context>(
        ContextParts{node.loop(), set, *pools.send, *pools.receive, options.seed, options.log});
  }
  net::Url address() const override { return net::Url::parse("sim://node0").value(); }
  void turn(std::span<Context* const>) override {
    world_.run_until(world_.now() + std::chrono::microseconds{20});
  }
  Time now() const override { return world_.now(); }

private:
  std::deque<Pools> pools_;
  net::VirtualWorld world_;
  std::deque<net::TransportSet> sets_;
};

inline std::vector<NetworkKind> virtual_networks() {
  return {{"sim", [] { return std::make_unique<VirtualNetwork>(false); }},
          {"strict", [] { return std::make_unique<VirtualNetwork>(true); }}};
}

inline std::vector<NetworkKind> networks() {
  std::vector<NetworkKind> all{
      {"tcp", [] { return std::make_unique<ProcessNetwork>("tcp://127.0.0.1:0"); }},
#if FANIN_HAVE_OFI
      {"ofi_tcp", [] { return std::make_unique<ProcessNetwork>("ofi+tcp://127.0.0.1"); }},
#endif
      {"shm", [] { return std::make_unique<ProcessNetwork>("shm://"); }},
      {"inproc", [] { return std::make_unique<InprocNetwork>(); }}};
  for (const std::string& url : net::given_urls()) {
    all.push_back({net::test_name(url), [url] { return std::make_unique<ProcessNetwork>(url); }});
  }
  for (NetworkKind& kind : virtual_networks()) all.push_back(std::move(kind));
  return all;
}

// And over providers of libfabric that have no connections: an endpoint for each (shm), one for
// all.
inline std::vector<NetworkKind> networks_and_datagrams() {
  std::vector<NetworkKind> all = networks();
#if FANIN_HAVE_OFI
  for (const std::string provider : {"shm", "tcp-rxm"}) {
    const std::string url = "ofi+" + provider + "://127.0.0.1";
    all.push_back({provider == "shm" ? "ofi_shm" : "ofi_rxm",
                   [url] { return std::make_unique<ProcessNetwork>(url); }});
  }
#endif
  return all;
}

// A server and a client, and more clients if wanted.
class TwoEnds {
public:
  explicit TwoEnds(const NetworkKind& kind, ContextOptions options = small_pages())
      : network_(kind.make()), options_(std::move(options)) {
    options_.log = [this](LogLevel, std::string_view text) { (logged_ += text) += '\n'; };
    add();
    add();
  }

  static ContextOptions small_pages() {
    ContextOptions options;
    options.send_pool = {.page_size = 16384, .pages = 32, .arena = {.shared = true}};
    options.receive_pool = {.page_size = 32768, .pages = 32, .arena = {}};
    options.seed = 1;
    return options;
  }

  [[nodiscard]] Context& server() { return *contexts_[0]; }
  [[nodiscard]] Context& client() { return *contexts_[1]; }
  Context& add() {
    contexts_.push_back(network_->make(options_));
    turned_.push_back(contexts_.back().get());
    return *contexts_.back();
  }
  [[nodiscard]] net::Url address() const { return network_->address(); }
  [[nodiscard]] Time now() const { return network_->now(); }

  // Turns all until it is true. False if nothing happens any more for long.
  bool until(const std::function<bool()>& done) {
    const Time start = now();
    while (!done()) {
      turn(1);
      if (now() - start > std::chrono::seconds{20}) return false;
    }
    return true;
  }
  void turn(int turns = 50) {
    for (; turns > 0; --turns) network_->turn(turned_);
  }
  [[nodiscard]] const std::string& said() const { return logged_; } // by the sockets

private:
  std::unique_ptr<Network> network_;
  ContextOptions options_;
  std::string logged_;
  std::vector<std::unique_ptr<Context>> contexts_;
  std::vector<Context*> turned_;
};

// Bytes that tell where they belong.
inline std::vector<std::byte> pattern(std::size_t size, std::uint64_t seed) {
  std::vector<std::byte> bytes(size);
  std::uint64_t state = seed * 0x9e3779b97f4a7c15U + 1;
  for (std::byte& byte : bytes) {
    state = state * 6364136223846793005U + 1442695040888963407U;
    byte = static_cast<std::byte>(state >> 56);
  }
  return bytes;
}

// A view of a page of the pool with these bytes.
inline memory::View view_of(memory::PagePool& pool, std::span<const std::byte> bytes) {
  auto page = pool.take();
  std::copy(bytes.begin(), bytes.end(), page.data());
  return page.freeze(0, static_cast<std::uint32_t>(bytes.size()));
}

} // namespace fanin::message::testing
