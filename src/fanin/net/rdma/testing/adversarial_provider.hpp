// For the tests: a provider in memory that does all that the contract of
// rdma/provider.hpp allows. It takes fewer sends than it was given, reads them late, tells of one
// for all before it, tells the listener of a connection after the first message, and leaves
// completions of endpoints that are closed, which it may be at for a while: then it writes rubbish
// to what was posted. Endpoints can share receives: one that is closed keeps one that it had begun
// with. It may refuse what is sent to a peer that is gone before it has said so. A message for
// which nothing was posted fails the test.
#pragma once

#include <algorithm>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "fanin/base/random.hpp"
#include "fanin/net/rdma/pages.hpp"
#include "fanin/net/rdma/provider.hpp"

namespace fanin::net::rdma {

class AdversarialProvider;

struct AdversarialListening final : Listening {
  ~AdversarialListening() override { fabric->erase(url.port); }
  std::map<std::uint16_t, AdversarialListening*>* fabric = nullptr;
  AdversarialProvider* provider = nullptr;
  ListenerId id = ListenerId::none;
};

// What its providers share.
struct AdversarialFabric {
  explicit AdversarialFabric(std::uint64_t seed) : random(seed) {}
  Random random;
  std::map<std::uint16_t, AdversarialListening*> listeners;
  std::uint16_t next_port = 1;
  bool stands_still = false; // what is sent stays under way
};

struct AdversarialQueue final : SharedReceiveQueue {
  [[nodiscard]] std::uint32_t most() const override { return 256; }
  std::deque<Receive> receives;
  std::uint32_t size = 0; // of each
};

class AdversarialEndpoint final : public Endpoint {
public:
  AdversarialEndpoint(AdversarialProvider& provider, std::uint16_t port)
      : provider_(provider), port_(port) {}
  ~AdversarialEndpoint() override;
  [[nodiscard]] bool ready() const override { return ready_; }
  [[nodiscard]] Result<Limits> open(const memory::PagePool&) override {
    return Limits{.inline_most = 64, .pieces_most = 3, .reads_anything = true};
  }
  [[nodiscard]] const void* device() override;
  [[nodiscard]] Result<std::unique_ptr<SharedReceiveQueue>> make_shared_receive_queue() override {
    return std::make_unique<AdversarialQueue>();
  }
  void share(SharedReceiveQueue& queue) override {
    queue_ = &static_cast<AdversarialQueue&>(queue);
  }
  [[nodiscard]] Result<> start(const HelloBytes& hello) override;
  void reject(const HelloBytes& hello) override;
  [[nodiscard]] Result<> post_receives(std::span<const Receive> receives,
                                       std::uint32_t size) override {
    queue_->receives.insert(queue_->receives.end(), receives.begin(), receives.end());
    queue_->size = size;
    return {};
  }
  [[nodiscard]] Result<std::size_t> post_sends(std::span<const Send> sends) override;
  [[nodiscard]] Result<> reach(const memory::Arena&) override { return {}; }
  void close() override;
  [[nodiscard]] bool is_retired() const override;
  void drained() override;

  void cancel(const std::deque<Receive>& receives);
  // Delivers one message. False: there is none.
  bool carry();
  [[nodiscard]] bool busy() const { return !under_way_.empty() && other_ != nullptr; }

private:
  friend class AdversarialProvider;
  struct UnderWay {
    std::vector<std::span<const std::byte>> pieces;
    std::vector<std::byte> copy;
    std::uint32_t tag = 0;
    Operation* operation = nullptr; // null: nobody is told
  };

  AdversarialProvider& provider_;
  std::uint16_t port_; // where it connects; 0: the peer has connected
  bool ready_ = false;
  bool closed_ = false;
  AdversarialEndpoint* other_ = nullptr;
  [[nodiscard]] bool shares() const { return queue_ != &own_; }

  AdversarialQueue own_;
  AdversarialQueue* queue_ = &own_;
  std::deque<UnderWay> under_way_;
  mutable std::deque<Receive> left_; // it is still at them
};

class AdversarialProvider final : public Provider {
public:
  explicit AdversarialProvider(std::shared_ptr<AdversarialFabric> fabric)
      : fabric_(std::move(fabric)) {}

  [[nodiscard]] std::string scheme() const override { return "adversarial"; }
  [[nodiscard]] Result<> check(const Url& url) const override {
    for (const auto& [name, value] : url.options) {
      if (name != pages_option && name != share_option)
        return fail(ErrorKind::usage, fmt::format("{}: no option \"{}\"", url.text(), name));
    }
    return {};
  }
  [[nodiscard]] Result<std::unique_ptr<Listening>> listen(const Url& url, ListenerId id,
                                                          const memory::PagePool&) override {
    auto listening = std::make_unique<AdversarialListening>();
    listening->fabric = &fabric_->listeners;
    listening->url = url;
    if (url.port == 0) listening->url.port = fabric_->next_port++;
    listening->provider = this;
    listening->id = id;
    if (!fabric_->listeners.emplace(listening->url.port, listening.get()).second) {
      listening->url.port = 0;
      return fail(ErrorKind::refused, url.text() + ": the port is in use");
    }
    return listening;
  }
  [[nodiscard]] Result<std::unique_ptr<Endpoint>> connect(const Url& url,
                                                          std::span<const Address>) override {
    auto endpoint = std::make_unique<AdversarialEndpoint>(*this, url.port);
    endpoint->peer = url.text();
    say({.kind = ProviderEvent::Kind::ready, .endpoint = endpoint.get()});
    endpoint->ready_ = false;
    endpoints_.push_back(endpoint.get());
    return endpoint;
  }
  [[nodiscard]] std::size_t completions(std::span<Completion> to) override {
    for (std::size_t i = 0; i < endpoints_.size(); ++i) {
      while (!fabric_->stands_still && endpoints_[i]->busy() && !random().chance(1, 4))
        endpoints_[i]->carry();
    }
    std::size_t count = 0;
    while (count < to.size() && !done_.empty()) {
      to[count++] = done_.front();
      done_.pop_front();
    }
    return count;
  }
  [[nodiscard]] bool next_event(ProviderEvent& event) override {
    if (events_.empty()) return false;
    event = std::move(events_.front());
    events_.pop_front();
    if (event.kind == ProviderEvent::Kind::ready)
      static_cast<AdversarialEndpoint*>(event.endpoint)->ready_ = true;
    return true;
  }
  [[nodiscard]] bool arm() override {
    return events_.empty() && done_.empty() &&
           std::ranges::none_of(endpoints_, [](const auto* endpoint) {
             return endpoint->busy() || !endpoint->left_.empty();
           });
  }
  [[nodiscard]] int descriptor() const override { return -1; }

private:
  friend class AdversarialEndpoint;
  Random& random() { return fabric_->random; }
  void say(ProviderEvent event) { events_.push_back(std::move(event)); }
  void forget(const Endpoint* endpoint) {
    std::erase_if(events_, [&](const ProviderEvent& event) { return event.endpoint == endpoint; });
  }

  std::shared_ptr<AdversarialFabric> fabric_;
  std::vector<AdversarialEndpoint*> endpoints_;
  std::deque<ProviderEvent> events_;
  std::deque<Completion> done_;
};

inline const void* AdversarialEndpoint::device() { return &provider_; }

inline AdversarialEndpoint::~AdversarialEndpoint() {
  close();
  std::erase(provider_.endpoints_, this);
}

inline Result<> AdversarialEndpoint::start(const HelloBytes& hello) {
  if (port_ == 0) { // the peer has connected, and hears of it first
    if (other_ == nullptr) return fail(ErrorKind::disconnected, "the peer is gone");
    other_->provider_.say(
        {.kind = ProviderEvent::Kind::connected, .endpoint = other_, .hello = hello});
    provider_.say({.kind = ProviderEvent::Kind::connected, .endpoint = this});
    return {};
  }
  const auto found = provider_.fabric_->listeners.find(port_);
  if (found == provider_.fabric_->listeners.end()) {
    provider_.say(
        {.kind = ProviderEvent::Kind::refused, .endpoint = this, .text = "nobody listens there"});
    return {};
  }
  AdversarialProvider& there = *found->second->provider;
  auto accepted = std::make_unique<AdversarialEndpoint>(there, 0);
  accepted->ready_ = true;
  accepted->other_ = this;
  accepted->peer = "adversarial://peer";
  other_ = accepted.get();
  there.endpoints_.push_back(accepted.get());
  ProviderEvent request{.kind = ProviderEvent::Kind::request, .hello = hello};
  request.request = std::move(accepted);
  request.listener = found->second->id;
  there.say(std::move(request));
  return {};
}

inline void AdversarialEndpoint::reject(const HelloBytes& hello) {
  if (other_ == nullptr) return;
  other_->provider_.say({.kind = ProviderEvent::Kind::refused,
                         .endpoint = other_,
                         .hello = hello,
                         .text = "rejected"});
  other_->other_ = nullptr;
  other_ = nullptr;
}

inline Result<std::size_t> AdversarialEndpoint::post_sends(std::span<const Send> sends) {
  if (other_ == nullptr && provider_.random().chance(1, 2))
    return fail(ErrorKind::disconnected, "the peer is gone");
  const std::size_t count = provider_.random().below(sends.size() + 1);
  std::size_t told = 0; // the last that holds memory is
  for (std::size_t i = 0; i < count; ++i) {
    if (!sends[i].inlined) told = i + 1;
  }
  for (std::size_t i = 0; i < count; ++i) {
    UnderWay& one = under_way_.emplace_back();
    one.tag = sends[i].tag;
    one.operation = i + 1 == told ? sends[i].operation : nullptr;
    for (const memory::View& extent : sends[i].extents) {
      if (sends[i].inlined) {
        one.copy.insert(one.copy.end(), extent.data(), extent.data() + extent.size);
      } else {
        one.pieces.emplace_back(extent.data(), extent.size);
      }
    }
  }
  return count;
}

inline bool AdversarialEndpoint::carry() {
  if (!busy()) return false;
  UnderWay one = std::move(under_way_.front());
  under_way_.pop_front();
  AdversarialQueue& there = *other_->queue_;
  EXPECT_FALSE(there.receives.empty()) << "a message came where nothing waited for it";
  if (there.receives.empty()) return false;
  const Receive receive = there.receives.front();
  there.receives.pop_front();
  if (one.pieces.empty()) one.pieces.emplace_back(one.copy);
  std::uint32_t size = 0;
  for (const auto& piece : one.pieces) {
    EXPECT_LE(size + piece.size(), there.size);
    if (!piece.empty()) std::memcpy(receive.to + size, piece.data(), piece.size());
    size += static_cast<std::uint32_t>(piece.size());
  }
  other_->provider_.done_.push_back({.operation = receive.operation,
                                     .endpoint = other_->shares() ? other_ : nullptr,
                                     .tag = one.tag,
                                     .size = size});
  if (one.operation != nullptr) provider_.done_.push_back({.operation = one.operation});
  return true;
}

inline bool AdversarialEndpoint::is_retired() const {
  for (const Receive& receive : left_) std::memset(receive.to, 0xdd, queue_->size);
  if (!shares() && provider_.random().chance(1, 3)) left_.clear();
  return left_.empty();
}

inline void AdversarialEndpoint::drained() {
  if (!shares() || !provider_.random().chance(1, 3)) return;
  cancel(left_);
  left_.clear();
}

inline void AdversarialEndpoint::cancel(const std::deque<Receive>& receives) {
  for (const Receive& receive : receives) {
    const bool known = shares() && provider_.random().chance(1, 2);
    provider_.done_.push_back({.operation = receive.operation,
                               .endpoint = known ? this : nullptr,
                               .status = Completion::Status::canceled});
  }
}

inline void AdversarialEndpoint::close() {
  if (std::exchange(closed_, true)) return;
  provider_.forget(this);
  if (!shares()) {
    cancel(own_.receives);
    left_ = std::exchange(own_.receives, {});
  } else if (other_ != nullptr && !other_->under_way_.empty() && !queue_->receives.empty()) {
    left_.push_back(queue_->receives.front()); // of which it has received a part
    queue_->receives.pop_front();
  }
  under_way_.clear();
  if (other_ == nullptr) return;
  other_->provider_.say({.kind = ProviderEvent::Kind::gone, .endpoint = other_});
  for (const UnderWay& one : std::exchange(other_->under_way_, {})) {
    if (one.operation == nullptr) continue;
    other_->provider_.done_.push_back({.operation = one.operation,
                                       .status = Completion::Status::failed,
                                       .text = "the peer is gone"});
  }
  other_->other_ = nullptr;
}

} // namespace fanin::net::rdma
