// Owners of what libibverbs and librdmacm give.
#pragma once

#include <memory>

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

namespace fanin::net::verbs {

template <auto destroy>
struct Destroy {
  template <class T>
  void operator()(T* what) const {
    (void)destroy(what);
  }
};
template <auto destroy>
struct DestroyVoid {
  template <class T>
  void operator()(T* what) const {
    destroy(what);
  }
};

using ProtectionDomain = std::unique_ptr<ibv_pd, Destroy<&ibv_dealloc_pd>>;
using MemoryRegion = std::unique_ptr<ibv_mr, Destroy<&ibv_dereg_mr>>;
using CompletionChannel = std::unique_ptr<ibv_comp_channel, Destroy<&ibv_destroy_comp_channel>>;
using CompletionQueue = std::unique_ptr<ibv_cq, Destroy<&ibv_destroy_cq>>;
using SharedReceiveQueueHandle = std::unique_ptr<ibv_srq, Destroy<&ibv_destroy_srq>>;
using QueuePair = std::unique_ptr<ibv_qp, Destroy<&ibv_destroy_qp>>;
using CmId = std::unique_ptr<rdma_cm_id, Destroy<&rdma_destroy_id>>;
using EventChannel = std::unique_ptr<rdma_event_channel, DestroyVoid<&rdma_destroy_event_channel>>;

} // namespace fanin::net::verbs
