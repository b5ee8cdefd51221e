#include "fanin/net/verbs/endpoint.hpp"

#include <arpa/inet.h>

#include <algorithm>
#include <cerrno>

#include "fanin/base/try.hpp"
#include "fanin/net/rdma/shared_receives.hpp"
#include "fanin/net/verbs/queue_pair.hpp"
#include "fanin/net/verbs/shared_receive_queue.hpp"

namespace fanin::net::verbs {
namespace {

// Requests that hold no pages are told as complete only so often.
constexpr std::uint32_t unsignalled_most = 8;

} // namespace

VerbsEndpoint::~VerbsEndpoint() {
  close();
  end_queue_pair();
  if (device_ != nullptr) device_->give_back(requests_most, receives_reserved());
}

const void* VerbsEndpoint::device() {
  if (!no_route_.empty()) return nullptr;
  return find_device_(id_->verbs).value_or(nullptr);
}

Result<std::unique_ptr<rdma::SharedReceiveQueue>> VerbsEndpoint::make_shared_receive_queue() {
  const auto device = FANIN_TRY(find_device_(id_->verbs));
  return FANIN_TRY(SharedReceiveQueue::make(*device));
}

void VerbsEndpoint::share(rdma::SharedReceiveQueue& queue) {
  shared_ = static_cast<SharedReceiveQueue&>(queue).get();
}

Result<rdma::Endpoint::Limits> VerbsEndpoint::open(const memory::PagePool& receive_pool) {
  if (!no_route_.empty()) return fail(ErrorKind::not_found, no_route_);
  const auto device = FANIN_TRY(find_device_(id_->verbs));
  receive_key_ = FANIN_TRY(device->key(*receive_pool.arena()));
  FANIN_TRY(device->reserve(requests_most, receives_reserved()));
  device_ = device;
  std::uint32_t inline_most = 0;
  queue_pair_ = FANIN_TRY(
      make_queue_pair(*device_, requests_most, rdma::receives_most, shared_, inline_most));
  if (shared_ != nullptr) device_->add_sharing(*queue_pair_, *this);
  if (auto done = change_state(*id_, *queue_pair_, path_, IBV_QPS_INIT); !done) {
    end_queue_pair();
    return std::unexpected(done.error());
  }
  return Limits{.inline_most = inline_most, .pieces_most = max_extents};
}

Result<> VerbsEndpoint::ready_to_send() {
  for (const ibv_qp_state state : {IBV_QPS_RTR, IBV_QPS_RTS}) {
    FANIN_TRY(change_state(*id_, *queue_pair_, path_, state));
    takes_shared_ = shared_ != nullptr;
  }
  return {};
}

Result<> VerbsEndpoint::start(const rdma::HelloBytes& hello) {
  if (by_peer_) FANIN_TRY(ready_to_send());
  started_ = true;
  rdma_conn_param wanted = connect_parameters(hello, *queue_pair_);
  if ((by_peer_ ? rdma_accept(id_.get(), &wanted) : rdma_connect(id_.get(), &wanted)) == 0)
    return {};
  return fail_errno(ErrorKind::refused, "RDMA connection manager", errno);
}

Result<> VerbsEndpoint::answered() {
  FANIN_TRY(ready_to_send());
  if (rdma_establish(id_.get()) == 0) return {};
  return fail_errno(ErrorKind::refused, "RDMA connection manager", errno);
}

void VerbsEndpoint::reject(const rdma::HelloBytes& hello) {
  (void)rdma_reject(id_.get(), hello.data(), rdma::hello_size);
}

Result<> VerbsEndpoint::reach(const memory::Arena& arena) {
  FANIN_TRY(device_->key(arena));
  return {};
}

// Without its queue pair, a device does not touch what was posted there. One that shares receives
// has to give back first what it has taken of them (InfiniBand specification, 10.3.1: Last WQE
// Reached); not all devices say that they have.
void VerbsEndpoint::close() {
  if (started_) (void)rdma_disconnect(id_.get());
  started_ = false;
  id_.reset();
  if (queue_pair_ == nullptr) return;
  ibv_qp_attr stopped{};
  stopped.qp_state = IBV_QPS_ERR;
  if (!takes_shared_ || ibv_modify_qp(queue_pair_.get(), &stopped, IBV_QP_STATE) != 0)
    end_queue_pair();
}

void VerbsEndpoint::end_queue_pair() {
  if (queue_pair_ != nullptr) device_->remove_sharing(*queue_pair_);
  queue_pair_.reset();
}

// Writes no bytes to no address, which the peer's device acknowledges.
void VerbsEndpoint::probe(rdma::Operation& operation) {
  if (posted_ - retired_ == requests_most) return; // what is under way will tell
  ibv_send_wr request{};
  request.wr_id = reinterpret_cast<std::uintptr_t>(&operation);
  request.opcode = IBV_WR_RDMA_WRITE;
  request.send_flags = IBV_SEND_SIGNALED;
  ibv_send_wr* bad = nullptr;
  if (ibv_post_send(queue_pair_.get(), &request, &bad) == 0) note_signal(++posted_);
}

// Chains of so many; a connection's own receives are one.
Result<> VerbsEndpoint::post_receives(std::span<const rdma::Receive> all, std::uint32_t size) {
  std::array<ibv_recv_wr, rdma::receives_most> requests;
  std::array<ibv_sge, rdma::receives_most> pieces;
  const auto receives = all.first(std::min<std::size_t>(all.size(), rdma::receives_most));
  for (std::size_t i = 0; i < receives.size(); ++i) {
    pieces[i] = {reinterpret_cast<std::uintptr_t>(receives[i].to), size, receive_key_};
    requests[i] = {.wr_id = reinterpret_cast<std::uintptr_t>(receives[i].operation),
                   .next = i + 1 < receives.size() ? &requests[i + 1] : nullptr,
                   .sg_list = &pieces[i],
                   .num_sge = 1};
  }
  ibv_recv_wr* bad = requests.data();
  const int error = shared_ == nullptr ? ibv_post_recv(queue_pair_.get(), requests.data(), &bad)
                                       : ibv_post_srq_recv(shared_, requests.data(), &bad);
  if (error != 0) {
    if (shared_ != nullptr) {
      for (const rdma::Receive& left : all.subspan(static_cast<std::size_t>(bad - requests.data())))
        left.operation->shared->forget(left.operation->number);
    }
    return fail_errno(ErrorKind::internal, "the device accepts no receive", error);
  }
  if (receives.size() == all.size()) return {};
  return post_receives(all.subspan(receives.size()), size);
}

// One chain, as far as the queue has room. Its last request that holds pages asks for a completion;
// where none does, the last of all does so now and then.
Result<std::size_t> VerbsEndpoint::post_sends(std::span<const rdma::Send> sends) {
  std::array<ibv_send_wr, rdma::sends_most> requests;
  std::array<ibv_sge, rdma::sends_most * max_extents> pieces;
  const std::size_t count =
      std::min<std::size_t>(sends.size(), requests_most - (posted_ - retired_));
  if (count == 0) return 0;
  std::size_t signalled = 0; // up to here
  for (std::size_t i = 0; i < count; ++i) {
    fill(sends[i], requests[i], &pieces[i * max_extents]);
    requests[i].next = i + 1 < count ? &requests[i + 1] : nullptr;
    if (!sends[i].inlined) signalled = i + 1;
  }
  if (signalled == 0 && posted_ + count - signalled_ >= unsignalled_most) signalled = count;
  if (signalled > 0) {
    requests[signalled - 1].send_flags |= IBV_SEND_SIGNALED;
    note_signal(posted_ + static_cast<std::uint32_t>(signalled));
  }
  posted_ += static_cast<std::uint32_t>(count);
  ibv_send_wr* bad = nullptr;
  const int error = ibv_post_send(queue_pair_.get(), requests.data(), &bad);
  if (error == 0) return count;
  return fail_errno(ErrorKind::disconnected, "the device accepts no message", error);
}

// A completion will come for all requests before `end`.
void VerbsEndpoint::note_signal(std::uint32_t end) {
  signalled_ = end;
  signals_[signals_put_++ % requests_most] = end;
}

void VerbsEndpoint::fill(const rdma::Send& send, ibv_send_wr& request, ibv_sge* pieces) {
  request = {};
  request.wr_id = reinterpret_cast<std::uintptr_t>(send.operation);
  request.opcode = IBV_WR_SEND_WITH_IMM;
  request.imm_data = htonl(send.tag);
  request.sg_list = pieces;
  request.num_sge = static_cast<int>(send.extents.size());
  if (send.inlined && send.size > 0) request.send_flags = IBV_SEND_INLINE;
  for (const memory::View& extent : send.extents) {
    const std::uint32_t key =
        send.inlined ? 0 : device_->key(*extent.page.get()->home->arena()).value();
    *pieces++ = {reinterpret_cast<std::uintptr_t>(extent.data()), extent.size, key};
  }
}

} // namespace fanin::net::verbs
