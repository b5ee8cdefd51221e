// For the tests: a network of posted receives in memory that does all that the words of
// posted/network.hpp allow. It takes fewer sends than it was given, reads them late, tells of one
// for all before it, tells the listener of a connection after the first message, and leaves
// completions of links that are closed, which it may be at for a while: then it writes rubbish to
// what was posted. Links can share receives: one that is closed keeps one that it had begun with.
// It may refuse what is sent to a peer that is gone before it has said so. A message for which
// nothing was posted fails the test.
#pragma once

#include <algorithm>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "fanin/base/random.hpp"
#include "fanin/net/posted/network.hpp"

namespace fanin::net::posted {

class RudeNetwork;

struct RudeListening final : Listening {
  ~RudeListening() override { fabric->erase(url.port); }
  std::map<std::uint16_t, RudeListening*>* fabric = nullptr;
  RudeNetwork* network = nullptr;
  ListenerId id = ListenerId::none;
};

// What its networks share.
struct RudeFabric {
  explicit RudeFabric(std::uint64_t seed) : random(seed) {}
  Random random;
  std::map<std::uint16_t, RudeListening*> listeners;
  std::uint16_t next_port = 1;
};

struct RudeQueue final : SharedReceiveQueue {
  [[nodiscard]] std::uint32_t most() const override { return 256; }
  std::deque<Receive> receives;
  std::uint32_t size = 0; // of each
};

class RudeLink final : public Link {
public:
  RudeLink(RudeNetwork& network, std::uint16_t port) : network_(network), port_(port) {}
  ~RudeLink() override;
  [[nodiscard]] bool ready() const override { return ready_; }
  [[nodiscard]] Result<Limits> open(const memory::PagePool&) override {
    return Limits{.inline_most = 64, .pieces_most = 3, .reads_anything = true};
  }
  [[nodiscard]] const void* device() override;
  [[nodiscard]] Result<std::unique_ptr<SharedReceiveQueue>> make_shared_receive_queue() override {
    return std::make_unique<RudeQueue>();
  }
  void share(SharedReceiveQueue& queue) override { queue_ = &static_cast<RudeQueue&>(queue); }
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
  [[nodiscard]] bool at_rest() const override;
  void drained() override;

  void cancel(const std::deque<Receive>& receives);
  // Delivers one message. False: there is none.
  bool carry();
  [[nodiscard]] bool busy() const { return !under_way_.empty() && other_ != nullptr; }

private:
  friend class RudeNetwork;
  struct UnderWay {
    std::vector<std::span<const std::byte>> pieces;
    std::vector<std::byte> copy;
    std::uint32_t tag = 0;
    Operation* operation = nullptr; // null: nobody is told
  };

  RudeNetwork& network_;
  std::uint16_t port_; // where it connects; 0: it was asked
  bool ready_ = false;
  bool closed_ = false;
  RudeLink* other_ = nullptr;
  [[nodiscard]] bool shares() const { return queue_ != &own_; }

  RudeQueue own_;
  RudeQueue* queue_ = &own_;
  std::deque<UnderWay> under_way_;
  mutable std::deque<Receive> left_; // it is still at them
};

class RudeNetwork final : public Network {
public:
  explicit RudeNetwork(std::shared_ptr<RudeFabric> fabric) : fabric_(std::move(fabric)) {}

  [[nodiscard]] std::string scheme() const override { return "rude"; }
  [[nodiscard]] Result<> check(const Url&) const override { return {}; }
  [[nodiscard]] Result<std::unique_ptr<Listening>> listen(const Url& url, ListenerId id,
                                                          const memory::PagePool&) override {
    auto listening = std::make_unique<RudeListening>();
    listening->fabric = &fabric_->listeners;
    listening->url = url;
    if (url.port == 0) listening->url.port = fabric_->next_port++;
    listening->network = this;
    listening->id = id;
    if (!fabric_->listeners.emplace(listening->url.port, listening.get()).second) {
      listening->url.port = 0;
      return fail(ErrorKind::refused, url.text() + ": the port is in use");
    }
    return listening;
  }
  [[nodiscard]] Result<std::unique_ptr<Link>> connect(const Url& url,
                                                      std::span<const Address>) override {
    auto link = std::make_unique<RudeLink>(*this, url.port);
    link->peer = url.text();
    say({.kind = LinkEvent::Kind::ready, .link = link.get()});
    link->ready_ = false;
    links_.push_back(link.get());
    return link;
  }
  [[nodiscard]] std::size_t completions(std::span<Completion> to) override {
    for (std::size_t i = 0; i < links_.size(); ++i) {
      while (links_[i]->busy() && !random().chance(1, 4)) links_[i]->carry();
    }
    std::size_t count = 0;
    while (count < to.size() && !done_.empty()) {
      to[count++] = done_.front();
      done_.pop_front();
    }
    return count;
  }
  [[nodiscard]] bool next_event(LinkEvent& event) override {
    if (events_.empty()) return false;
    event = std::move(events_.front());
    events_.pop_front();
    if (event.kind == LinkEvent::Kind::ready) static_cast<RudeLink*>(event.link)->ready_ = true;
    return true;
  }
  [[nodiscard]] bool arm() override {
    return events_.empty() && done_.empty() && std::ranges::none_of(links_, [](const auto* link) {
             return link->busy() || !link->left_.empty();
           });
  }
  [[nodiscard]] int descriptor() const override { return -1; }

private:
  friend class RudeLink;
  Random& random() { return fabric_->random; }
  void say(LinkEvent event) { events_.push_back(std::move(event)); }
  void forget(const Link* link) {
    std::erase_if(events_, [&](const LinkEvent& event) { return event.link == link; });
  }

  std::shared_ptr<RudeFabric> fabric_;
  std::vector<RudeLink*> links_;
  std::deque<LinkEvent> events_;
  std::deque<Completion> done_;
};

inline const void* RudeLink::device() { return &network_; }

inline RudeLink::~RudeLink() {
  close();
  std::erase(network_.links_, this);
}

inline Result<> RudeLink::start(const HelloBytes& hello) {
  if (port_ == 0) { // asked; who has asked hears of it first
    if (other_ == nullptr) return fail(ErrorKind::disconnected, "the peer is gone");
    other_->network_.say({.kind = LinkEvent::Kind::connected, .link = other_, .hello = hello});
    network_.say({.kind = LinkEvent::Kind::connected, .link = this});
    return {};
  }
  const auto found = network_.fabric_->listeners.find(port_);
  if (found == network_.fabric_->listeners.end()) {
    network_.say({.kind = LinkEvent::Kind::refused, .link = this, .text = "nobody listens there"});
    return {};
  }
  RudeNetwork& there = *found->second->network;
  auto asked = std::make_unique<RudeLink>(there, 0);
  asked->ready_ = true;
  asked->other_ = this;
  asked->peer = "rude://peer";
  other_ = asked.get();
  there.links_.push_back(asked.get());
  LinkEvent request{.kind = LinkEvent::Kind::request, .hello = hello};
  request.request = std::move(asked);
  request.listener = found->second->id;
  there.say(std::move(request));
  return {};
}

inline void RudeLink::reject(const HelloBytes& hello) {
  if (other_ == nullptr) return;
  other_->network_.say(
      {.kind = LinkEvent::Kind::refused, .link = other_, .hello = hello, .text = "rejected"});
  other_->other_ = nullptr;
  other_ = nullptr;
}

inline Result<std::size_t> RudeLink::post_sends(std::span<const Send> sends) {
  if (other_ == nullptr && network_.random().chance(1, 2))
    return fail(ErrorKind::disconnected, "the peer is gone");
  const std::size_t count = network_.random().below(sends.size() + 1);
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

inline bool RudeLink::carry() {
  if (!busy()) return false;
  UnderWay one = std::move(under_way_.front());
  under_way_.pop_front();
  RudeQueue& there = *other_->queue_;
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
  other_->network_.done_.push_back({.operation = receive.operation,
                                    .link = other_->shares() ? other_ : nullptr,
                                    .tag = one.tag,
                                    .size = size});
  if (one.operation != nullptr) network_.done_.push_back({.operation = one.operation});
  return true;
}

inline bool RudeLink::at_rest() const {
  for (const Receive& receive : left_) std::memset(receive.to, 0xdd, queue_->size);
  if (!shares() && network_.random().chance(1, 3)) left_.clear();
  return left_.empty();
}

inline void RudeLink::drained() {
  if (!shares() || !network_.random().chance(1, 3)) return;
  cancel(left_);
  left_.clear();
}

inline void RudeLink::cancel(const std::deque<Receive>& receives) {
  for (const Receive& receive : receives) {
    const bool known = shares() && network_.random().chance(1, 2);
    network_.done_.push_back({.operation = receive.operation,
                              .link = known ? this : nullptr,
                              .status = Completion::Status::canceled});
  }
}

inline void RudeLink::close() {
  if (std::exchange(closed_, true)) return;
  network_.forget(this);
  if (!shares()) {
    cancel(own_.receives);
    left_ = std::exchange(own_.receives, {});
  } else if (other_ != nullptr && !other_->under_way_.empty() && !queue_->receives.empty()) {
    left_.push_back(queue_->receives.front()); // of which it has received a part
    queue_->receives.pop_front();
  }
  under_way_.clear();
  if (other_ == nullptr) return;
  other_->network_.say({.kind = LinkEvent::Kind::gone, .link = other_});
  for (const UnderWay& one : std::exchange(other_->under_way_, {})) {
    if (one.operation == nullptr) continue;
    other_->network_.done_.push_back({.operation = one.operation,
                                      .status = Completion::Status::failed,
                                      .text = "the peer is gone"});
  }
  other_->other_ = nullptr;
}

} // namespace fanin::net::posted
