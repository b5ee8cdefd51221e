// A connection's queue pair, with the id by which the connection manager knows it.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>

#include "fanin/net/first_count.hpp"
#include "fanin/net/rdma/provider.hpp"
#include "fanin/net/verbs/device.hpp"
#include "fanin/net/verbs/handle.hpp"
#include "fanin/net/verbs/path_options.hpp"

namespace fanin::net::verbs {

using FindDevice = std::function<Result<Device*>(ibv_context*)>;

class VerbsEndpoint final : public rdma::Endpoint {
public:
  // `by_peer`: the peer has requested the connection.
  VerbsEndpoint(FindDevice find_device, CmId id, const PathOptions& path, bool by_peer)
      : find_device_(std::move(find_device)), id_(std::move(id)), path_(path), by_peer_(by_peer) {
    id_->context = this;
  }
  ~VerbsEndpoint() override;

  [[nodiscard]] bool ready() const override { return by_peer_ || route_known_; }
  [[nodiscard]] Result<Limits> open(const memory::PagePool& receive_pool) override;
  [[nodiscard]] const void* device() override;
  [[nodiscard]] Result<std::unique_ptr<rdma::SharedReceiveQueue>>
  make_shared_receive_queue() override;
  void share(rdma::SharedReceiveQueue& queue) override;
  [[nodiscard]] Result<> start(const rdma::HelloBytes& hello) override;
  void reject(const rdma::HelloBytes& hello) override;
  [[nodiscard]] Result<> post_receives(std::span<const rdma::Receive> receives,
                                       std::uint32_t size) override;
  [[nodiscard]] Result<std::size_t> post_sends(std::span<const rdma::Send> sends) override;
  [[nodiscard]] Result<> reach(const memory::Arena& arena) override;
  void probe(rdma::Operation& operation) override;
  void close() override;
  [[nodiscard]] bool is_retired() const override {
    return queue_pair_ == nullptr || !takes_shared_;
  }
  void drained() override {
    if (last_receive_taken_) end_queue_pair();
  }
  void retire_now() override { end_queue_pair(); }

  [[nodiscard]] rdma_cm_id* id() const { return id_.get(); }
  void route_found() { route_known_ = true; }
  void has_no_route(std::string why) { // open() says so
    no_route_ = std::move(why);
    route_known_ = true;
  }
  [[nodiscard]] Result<> answered(); // the listener has agreed
  // The device will take no more of the receives that it shares.
  void last_receive_taken() { last_receive_taken_ = true; }
  // The next signalled request is complete, and with it all before.
  void retire() { retired_ = signals_[signals_taken_++ % requests_most]; }

private:
  static constexpr std::uint32_t requests_most = 128; // at the device, a power of two

  [[nodiscard]] Result<> ready_to_send();
  void end_queue_pair();
  // In the completion queue; a shared queue has reserved its own.
  [[nodiscard]] std::uint32_t receives_reserved() const {
    return shared_ == nullptr ? rdma::receives_most : 0;
  }
  void note_signal(std::uint32_t end);
  void fill(const rdma::Send& send, ibv_send_wr& request, ibv_sge* pieces);

  FindDevice find_device_;
  Device* device_ = nullptr;
  CmId id_;
  QueuePair queue_pair_;
  PathOptions path_;
  bool by_peer_;
  bool route_known_ = false;
  std::string no_route_;
  bool started_ = false;
  ibv_srq* shared_ = nullptr; // where its receives are posted; null: to its own
  bool takes_shared_ = false; // it may have taken receives of shared_
  bool last_receive_taken_ = false;
  std::uint32_t receive_key_ = 0; // of the receive pool
  // Of send requests, since the beginning.
  std::uint32_t posted_ = first_count;
  std::uint32_t signalled_ = first_count;
  std::uint32_t retired_ = first_count;
  std::array<std::uint32_t, requests_most> signals_; // a ring: posted_ behind each signalled one
  std::uint32_t signals_put_ = first_count;
  std::uint32_t signals_taken_ = first_count;
};

} // namespace fanin::net::verbs
